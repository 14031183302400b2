"""The pages of docs/operators that change installed packages: each command runs in a separate environment."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import httpx
import pytest

from .environments import PATIENCE, Sandbox, Served, Supplies
from .wheels import checkout_wheel

PAGES: Final = Path(__file__).parents[2] / "docs" / "operators"
_MARK: Final = "<!-- run by tests/operations/test_pages.py -->"
_BLOCK: Final = re.compile(
    r"^(?:<!-- (not run|\w+)(?:: [^\n]*)? -->\n)?```console\n(.*?)^```", re.MULTILINE | re.DOTALL
)
_COMMAND: Final = re.compile(r"^\$ (.*)((?:\n(?!\$ ).*)*)", re.MULTILINE)


@pytest.fixture
def sandbox(sandbox: Sandbox, wheelhouse: Path) -> Sandbox:
    """An environment with messages 0.1.0 and catalog-v2, and an index of all the tests' packages."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here, and the pages show commands for it")
    for wheel in wheelhouse.glob("*.whl"):
        (sandbox.wheels / wheel.name).symlink_to(wheel)
    for name in ("messages", "catalog-core", "catalog-v2"):
        sandbox.put(checkout_wheel(sandbox.wheels, name, "0.1.0"))
    return sandbox


def commands(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield each command of a page that can be run, with its folder and its shown output."""
    text = (PAGES / page).read_text(encoding="utf-8")
    assert _MARK in text
    blocks = [(where, block) for where, block in _BLOCK.findall(text) if where != "not run"]
    for where, block in blocks:
        for command, shown in _COMMAND.findall(block):
            yield where, command, shown.strip("\n")


def follow(page: str, sandbox: Sandbox, host: Served, elsewhere: Callable[[], Sandbox]) -> None:
    """Run a page's commands from top to bottom."""
    port = httpx.URL(host.url()).port
    status = 0
    todo = list(commands(page))
    for number, (where, command, shown) in enumerate(todo):
        used = elsewhere() if where == "elsewhere" else sandbox
        actual = command.replace("localhost:8080", f"localhost:{port}")
        ended = subprocess.run(
            ["sh", "-c", f"(exit {status}); {actual}"],
            cwd=sandbox.folder,
            env=used.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        status = ended.returncode
        asked = number + 1 < len(todo) and todo[number + 1][1] == "echo $?"
        assert status == 0 or asked, f"{page}: `{command}` ended with {status}:\n{ended.stdout}"
        if shown:
            compare(f"{page}: `{command}`", shown, ended.stdout)


def compare(what: str, shown: str, printed: str) -> None:
    """Compare shown with printed output: `...` is any text, or any lines if alone on a line."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*?") + r"\n"
        for line in shown.splitlines()
    ]
    stripped = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    assert re.fullmatch("".join(lines), stripped), f"{what}: the page shows\n{shown}\nand printed is\n{stripped}"


@pytest.mark.thorough
@pytest.mark.parametrize("pages", [["upgrade.md", "rollback.md"], ["removal.md"], ["bundle.md"], ["restart.md"]])
def test_every_command_of_a_page_works(sandbox: Sandbox, supplies: Supplies, pages: list[str], tmp_path: Path) -> None:
    """The output is as the page shows it; a rollback reverses the upgrade of the page before."""
    with sandbox.serving() as host:
        host.post("/messages", json={"content": "Water the plants"}).raise_for_status()
        if "upgrade.md" in pages:
            step = "ALTER TABLE messages ADD COLUMN author VARCHAR(100);"
            checkout_wheel(sandbox.wheels, "messages", "0.2.0", step=step)
        for page in pages:
            follow(page, sandbox, host, cache(lambda: Sandbox(tmp_path / "elsewhere", supplies, empty=True)))
