"""The documentation's pages are correct: commands run, examples are valid, and links work."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plughost._logging import silent_logger
from plughost._runtime.generation import start_problems
from plughost._runtime.host import Host
from plughost._settings.sources import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

# These blocks can't be run; the page gives the same reason in a comment before the block.
NOT_RUN: Final = {
    "docs/api-clients/README.md: the generators are installed from other registries",
    "CONTRIBUTING.md: it breaks the code, for hours",
    "CONTRIBUTING.md: it installs everything anew",
    "CONTRIBUTING.md: it builds every distribution; tests/release does",
    "CONTRIBUTING.md: it needs a browser",
    "CONTRIBUTING.md: it runs the tests",
    "CONTRIBUTING.md: it takes minutes, and needs wrk",
    "docs/operators/containers.md: Kubernetes reads it",
    "docs/operators/containers.md: it needs a container engine",
    "docs/operators/install.md: it needs uv and pipx",
    "docs/operators/monitoring.md: it needs openssl",
    "docs/operators/monitoring.md: it is Prometheus's own configuration",
    "docs/operators/monitoring.md: it needs a collector",
    "docs/performance.md: it takes an hour",
    "docs/performance.md: it takes six minutes",
    "docs/operators/restart.md: it needs root",
    "docs/operators/serving.md: it needs root",
    "docs/operators/serving.md: systemd reads it",
    "docs/operators/stores.md: cron runs it",
    "docs/operators/stores.md: it is run by tests/stores",
    "docs/operators/stores.md: there is no such server",
    "docs/plugin-authors/README.md: a picture of a folder",
    "docs/plugin-authors/coming-from.md: it is FastAPI",
    "docs/plugin-authors/stores.md: another store",
    "docs/plugin-authors/stores.md: it is run by tests/stores",
    "docs/plugin-authors/stores.md: it is run by the tests of plughost-scaffold",
    "docs/plugin-authors/stores.md: part of a declaration",
    "docs/plugin-authors/tutorial.md: it publishes",
}

# Types from conftest.py; modules here can't import from each other.
Page = Any
Session = Any
Block = Any


def test_blocks_that_are_not_run_are_listed(all_pages: list[Page]) -> None:
    """The page gives a reason for each of them, and this file lists it."""
    found = {
        f"{page.name}: {block.marker_argument('not run')}"
        for page in all_pages
        for block in page.blocks()
        if block.marker_argument("not run") is not None
    }
    assert found == NOT_RUN


def test_the_commands_and_examples_of_a_page_work(
    session_page: Page, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page are run or checked in order: commands, settings, Python, JSON, and their output."""
    monkeypatch.chdir(session.folder)
    runner = _PageRunner(session_page, session)
    for block in session_page.blocks():
        try:
            runner.run(block)
        except Exception as error:
            error.add_note(f"in {session_page.name}:{block.line}")
            raise


class _PageRunner:
    """Runs the blocks of a page in order."""

    def __init__(self, page: Page, session: Session) -> None:
        self._page = page
        self._session = session
        self._printed = ""
        self._module = types.ModuleType("page")

    def run(self, block: Block) -> None:
        """Run or check a block."""
        if (
            block.marker_argument("not run") is not None
            or block.marker_argument("help") is not None
            or block.marker == "signature"
        ):
            return
        if block.marker == "stopped":
            self._session.stop_hosts()
        if block.marker == "prints":
            _compare(block.text, self._printed)
        elif (name := block.marker_argument("file")) is not None:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(block.text + "\n", encoding="utf-8")
        elif (name := block.marker_argument("example")) is not None:
            example = Path(__file__).parents[2] / "docs" / "plugin-authors" / "example" / name
            assert f"\n{block.text}\n" in f"\n{example.read_text(encoding='utf-8')}\n", f"{name} has it otherwise"
        else:
            known = {"console": self._console, "bash": self._bash, "python": self._python}
            known |= {"toml": _check_settings, "json": self._json}
            assert block.language in known, f"a block of {block.language or 'no language'} needs a comment before it"
            known[block.language](block)

    def _console(self, block: Block) -> None:
        """Run the commands after `$ `, and compare their output with the lines below them."""
        commands = re.findall(r"^\$ (.*(?:\n> .*)*)((?:\n(?!\$ ).*)*)", block.text, re.MULTILINE)
        for number, (command, shown) in enumerate(commands):
            if shown.startswith("\nplughost ") and " serve" in command:
                status, self._printed = 0, self._session.serve(command)
            else:
                status, self._printed = self._session.run(command.replace("\n> ", "\n"))
            asked = number + 1 < len(commands) and commands[number + 1][0] == "echo $?"
            assert status == 0 or asked, f"`{command}` ended with {status}:\n{self._printed}"
            if shown:
                _compare(shown.removeprefix("\n"), self._printed)

    def _bash(self, block: Block) -> None:
        status, self._printed = self._session.run(block.text)
        assert status == 0, f"it ended with {status}:\n{self._printed}"

    def _python(self, block: Block) -> None:
        """Run the block with the names from earlier blocks."""
        source = "\n" * block.line + self._session.with_actual_ports(block.text)
        code = compile(source, self._page.name, "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as out, _registered(self._module):
            exec(code, self._module.__dict__)
        self._printed = self._session.with_documented_ports(out.getvalue())

    def _json(self, block: Block) -> None:
        json.loads(block.text)


@contextlib.contextmanager
def _registered(module: types.ModuleType) -> Iterator[None]:
    """Let pydantic and dataclasses find the module of a page's classes."""
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        del sys.modules[module.__name__]


def _check_settings(block: Block) -> None:
    """Check that the settings can be pasted into `plughost.toml`: keys and values are valid, for plugins too."""
    file = Path("checked.toml")
    file.write_text(block.text + "\n", encoding="utf-8")
    generation = Host(read_settings(file, {}), logger=silent_logger()).dry_run(rehearsed=True)
    generation.close()
    invalid = [str(entry.failure) for entry in generation.registry if "checked.toml" in str(entry.failure)]
    assert [*invalid, *generation.warnings, *start_problems(generation)] == []


def _compare(shown: str, printed: str) -> None:
    """Compare the page's text with the output, whatever the number of spaces between words.

    `...` stands for any text; on a line of its own, for any lines.
    """
    patterns = []
    for line in _lines(shown):
        any_text = re.sub(r"(\\ )?\\\.\\\.\\\.(\\ )?", ".*?", re.escape(line))
        patterns.append(r"(?:.*\n)*?" if line == "..." else any_text + r"\n")
    text = "".join(f"{line}\n" for line in _lines(printed))
    assert re.fullmatch("".join(patterns), text), f"the page shows\n{shown}\nand printed is\n{printed}"


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.rstrip().splitlines()]


def test_relative_links_work(page: Page, root: Path) -> None:
    """They lead to a file of this checkout, and to an existing heading of it."""
    text = re.sub(r"^```.*?^```", "", page.text, flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.path.parent / name).resolve() if name else page.path
        there = file.exists() and file.is_relative_to(root)
        if not there or (anchor and anchor not in _anchors(file)):
            broken.append(target)
    assert broken == []


def _anchors(file: Path) -> set[str]:
    """Return the anchors that GitHub generates for a page's headings."""
    text = re.sub(r"^```.*?^```", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme(all_pages: list[Page], root: Path) -> None:
    """A link to a folder leads to its README."""
    reached = {root / "README.md"}
    waiting = [root / "README.md"]
    while waiting:
        page = waiting.pop()
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            file = (page.parent / target).resolve()
            file = file / "README.md" if file.is_dir() else file
            if file.suffix == ".md" and file.is_file() and file not in reached:
                reached.add(file)
                waiting.append(file)
    assert {page.path for page in all_pages} - reached == set()
