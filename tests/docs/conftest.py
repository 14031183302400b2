"""Reads the pages of the documentation, and runs their commands in a scratch folder against hosts of their own.

A comment on the line before a fenced block says what is special about it:

    <!-- not run: reason -->       it can't be run here; test_pages.py lists these
    <!-- stopped -->               the host is to be stopped before it
    <!-- prints -->                what the block before it prints; `...` stands for anything
    <!-- file: plughost.toml -->   it is written to this file in the scratch folder
    <!-- example: src/x.py -->     it is a part of this file of docs/plugin-authors/example
    <!-- help: plughost serve -->  it is what `plughost serve --help` prints; test_reference.py compares it
    <!-- signature -->             it is a hook's; test_reference.py compares it

On a page of its own line, `<!-- folder: checkout -->` runs the page in a copy of the checkout, and
`<!-- run by FILE -->` leaves it to the test that is named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

import pytest
from tests.terminal import QUIET, Terminal, lent

ROOT: Final = Path(__file__).parents[2]
PORTS: Final = {
    ("main", "http"): 8080,
    ("main", "https"): 8443,
    ("library", "http"): 9998,
    ("library", "https"): 4443,
}
SLOW_PAGES: Final = {"docs/operators/install.md", "docs/plugin-authors/README.md", "docs/plugin-authors/tutorial.md"}
"""The pages that build and install. They take as long as all others together, so only complete runs include them."""
TIMEOUT_SECONDS: Final = 120.0
"""A command that takes longer is ended, and its test fails."""

_MARKER: Final = re.compile(r"<!-- (.*) -->")
_END: Final = re.compile(rb"\x1e(\d+)\x1e\n")
_SERVE: Final = re.compile(r"(\./dev serve|plughost serve --dev)\b(.*)")
_WHEELS: Final = re.compile(r"pip wheel .*--no-deps .*--wheel-dir (\S+) (.*)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        language: Its info string.
        text: What is between the fences.
        line: The line of its opening fence, counted from 1.
        marker: The comment before it, or an empty string.
    """

    language: str
    text: str
    line: int
    marker: str

    def marker_argument(self, kind: str) -> str | None:
        """Return the marker's text after its kind and a colon. None if it is of another kind."""
        name, _, rest = self.marker.partition(": ")
        return rest if name == kind else None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the documentation."""

    path: Path

    @property
    def name(self) -> str:
        """Its path in the checkout."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        """Its Markdown."""
        return self.path.read_text(encoding="utf-8")

    def blocks(self) -> Iterator[Block]:
        """Yield its fenced blocks."""
        lines = self.text.splitlines()
        opened: int | None = None
        for number, line in enumerate(lines):
            if not line.startswith("```"):
                continue
            if opened is None:
                opened = number
                continue
            marker = _MARKER.fullmatch(lines[opened - 1]) if opened else None
            text = "\n".join(lines[opened + 1 : number])
            yield Block(lines[opened][3:].strip(), text, opened + 1, marker[1] if marker else "")
            opened = None
        assert opened is None, f"{self.name}:{(opened or 0) + 1}: the block has no end"


def pages() -> list[Page]:
    """Return the README, CONTRIBUTING and every page of docs/."""
    return [
        Page(ROOT / "README.md"),
        Page(ROOT / "CONTRIBUTING.md"),
        *(Page(path) for path in sorted((ROOT / "docs").rglob("*.md"))),
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with `page` for every page, and tests with `session_page` for pages with blocks."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", pages(), ids=lambda page: page.name)
    if "session_page" in metafunc.fixturenames:
        ours = [page for page in pages() if "<!-- run by " not in page.text]
        with_blocks = [
            pytest.param(page, marks=[pytest.mark.thorough] if page.name in SLOW_PAGES else [])
            for page in ours
            if any(True for _ in page.blocks())
        ]
        metafunc.parametrize("session_page", with_blocks, ids=lambda page: page.name)


@pytest.fixture
def all_pages() -> list[Page]:
    """Every page."""
    return pages()


@pytest.fixture
def root() -> Path:
    """The checkout."""
    return ROOT


class Session:
    """A shell in a folder, and the hosts that it started. Variables persist from command to command.

    Commands get the ports of the session's host in place of the documented ones; their output is converted back.
    """

    def __init__(self, folder: Path) -> None:
        """Start the shell."""
        self.folder = folder
        self._environment = _environment(folder)
        self._shell = _popen(["bash", "--norc", "--noprofile"], folder, self._environment, stdin=subprocess.PIPE)
        self._hosts: list[subprocess.Popen[bytes]] = []
        self._ports: dict[int, int] = {}
        self._status = 0

    def run(self, command: str) -> tuple[int, str]:
        """Run a command in the shell; return its exit code and what it printed."""
        script = self.folder / ".command"
        script.write_text(self.with_actual_ports(_with_uv(command)) + "\n", encoding="utf-8")
        assert self._shell.stdin is not None
        line = f"(exit {self._status}); . {script} </dev/null; printf '\\036%s\\036\\n' $?\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        text, end = _read_until(self._shell, _END)
        self._status = int(end[1])
        return self._status, self.with_documented_ports(text)

    def serve(self, command: str) -> str:
        """Start a host in the background, on free ports; return what it prints on start."""
        self.stop_hosts()
        found = _SERVE.fullmatch(command)
        assert found is not None, f"`{command}` is not how a host is started here"
        _, path = self.run('printf %s "$PATH"')
        ports = {f"PLUGHOST_SITES__{site}__{scheme}_PORT".upper(): "0" for site, scheme in PORTS}
        log = self.folder.parent / "host.log"
        terminal = Terminal()
        with lent(terminal) as side, log.open("ab") as errors:
            host = subprocess.Popen(
                [shutil.which("plughost", path=path) or "plughost", "serve", "--dev", *found[2].split()],
                cwd=self.folder,
                env=self._environment | ports | {"PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=side,
                stderr=errors,
            )
        self._hosts.append(host)
        text = "".join(takewhile(lambda line: "Press Ctrl+C to stop." not in line, terminal.lines()))
        assert host.poll() is None, f"the host did not start: {text}\nlog:\n{log.read_text()}"
        terminal.close()
        for site, http, https in re.findall(r"^  (\w+) +http://.*:(\d+) +https://.*:(\d+)", text, re.MULTILINE):
            self._ports |= {PORTS[site, "http"]: int(http), PORTS[site, "https"]: int(https)}
        return self.with_documented_ports(text + "  Press Ctrl+C to stop.\n")

    def with_actual_ports(self, text: str) -> str:
        """Return a text with the ports of the running host."""
        return _replace_ports(text, self._ports)

    def with_documented_ports(self, text: str) -> str:
        """Return a text with the documented ports, and without the scratch folder's name."""
        return _replace_ports(text, {actual: port for port, actual in self._ports.items()})

    def stop_hosts(self) -> None:
        """Stop the hosts that were started, and check their exit codes."""
        while self._hosts:
            host = self._hosts.pop()
            host.terminate()
            assert host.wait(TIMEOUT_SECONDS) == 0, f"log:\n{(self.folder.parent / 'host.log').read_text()}"

    def close(self) -> None:
        """Stop the hosts and the shell."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.close()
        self._shell.stdout.close()
        self._shell.wait(TIMEOUT_SECONDS)
        self.stop_hosts()


@pytest.fixture
def session(tmp_path: Path, session_page: Page) -> Iterator[Session]:
    """A session in a folder of its own; in a copy of the checkout for a page that says so."""
    for tool in ("bash", "curl"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here, and the documentation shows commands for it")
    folder = tmp_path / "here"
    if "<!-- folder: checkout -->" in session_page.text:
        copy_checkout(folder, session_page.text)
    else:
        folder.mkdir()
    # Without this, curl would print its progress too.
    (tmp_path / ".curlrc").write_text("silent\nshow-error\n")
    running = Session(folder)
    yield running
    running.close()


def copy_checkout(to: Path, text: str) -> None:
    """Copy the sources of distributions, since pip leaves files behind when it builds.

    Args:
        to: The target folder.
        text: The page. Only the plugins that it names are copied.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "."]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        first, _, rest = name.partition("/")
        left_out = first in {"tests", "bench"} or name.startswith(".")
        if first == "plugins":
            left_out = f"plughost-{rest.partition('/')[0]}" not in text
        if not left_out and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a reader who has installed plughost."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PLUGHOST_", "VIRTUAL_ENV"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return kept | {
        "PATH": path,
        "CURL_HOME": str(folder.parent),
        "PYTHONUNBUFFERED": "1",
        "PLUGHOST_LOG__FORMAT": "text",
        **QUIET,
    }


def _with_uv(command: str) -> str:
    """Replace pip by uv, which is much faster, if it is installed."""
    folders = (f"{ROOT}/.dev/bin", str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    uv = shutil.which("uv", path=os.pathsep.join(folders))
    if uv is None:
        return command
    if (wheels := _WHEELS.fullmatch(command)) is not None:
        return f"for each in {wheels[2]}; do {uv} build --quiet --wheel --out-dir {wheels[1]} $each; done"
    if re.match(r"pip (install|uninstall) ", command):
        return f"{uv} {command}".replace(" --yes", "")
    return command


def _popen(
    command: Sequence[str],
    folder: Path,
    environment: dict[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a process with its standard error in its output."""
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _read_until(process: subprocess.Popen[bytes], end: re.Pattern[bytes]) -> tuple[str, re.Match[bytes]]:
    """Return a process's output up to a mark, and the mark. Fail if the process ends or hangs before."""
    assert process.stdout is not None
    timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
    timer.start()
    printed = b""
    try:
        while (found := end.search(printed)) is None:
            line = process.stdout.readline()
            assert line, f"it ended, or hung for {TIMEOUT_SECONDS:g} s:\n{printed.decode()}"
            printed += line
    finally:
        timer.cancel()
    return printed[: found.start()].decode(), found


def _replace_ports(text: str, ports: dict[int, int]) -> str:
    return re.sub(r"(?<=:)\d{2,5}\b", lambda found: str(ports.get(int(found[0]), found[0])), text)
