"""The command line, with only a test folder's plugins."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.host.packages import plugin_entry, speaker_source, write_package
from tests.terminal import QUIET, Terminal, lent

from plughost._cli.main import main
from plughost._plugins.environment import Environment

PATIENCE = 60.0
STORE_PLUGIN = """
from pathlib import Path

from plughost import Operation, Route, RouteGroup, Store, hookimpl


class Say:
    def on_get(self, req, resp):
        resp.media = None


@hookimpl
def register_stores(context):
    steps = Path(__file__).parent / "NAME"
    return [Store(name="NAME", entities=lambda db: db, migrations=steps, tables=("NAME",))]


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/kept", routes=(Route("", Say(), {"GET": Operation(summary="Say")}),))]
"""


class Line:
    """A command line in its own folder, with only the plugins installed there."""

    def __init__(self, folder: Path) -> None:
        """Start with an empty folder and ports that the system chooses."""
        self.folder = folder
        self.packages = folder / "packages"
        self.packages.mkdir()
        self.elsewhere = Environment().plugins
        self.configure("")

    def configure(self, text: str) -> None:
        """Write the settings file; the system chooses ports."""
        ports = "".join(f"[sites.{site}]\nhttp_port = 0\nhttps_port = 0\n" for site in ("main", "library"))
        (self.folder / "plughost.toml").write_text(f"{text}\n{ports}")

    def install(
        self, name: str, source: str | None = None, *, version: str = "1.0", requires: tuple[str, ...] = ()
    ) -> None:
        """Install a plugin, by default one that answers with its name."""
        module = f"cli_{name.replace('-', '_')}"
        files = {f"{module}.py": speaker_source(f"'{name}'", f"/{name}") if source is None else source}
        entry = plugin_entry(name, module)
        write_package(self.packages, f"cli-{name}", files, version=version, requires=requires, entry_points=entry)

    def run(self, *arguments: str) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(main, arguments)

    def start(self, *arguments: str, under: Iterable[str] = (), **options: Any) -> subprocess.Popen[str]:
        """Run a command in its own process, without this environment's other distributions.

        Another command may run it.
        """
        others = [word for found in self.elsewhere for word in ("--without", found.name)]
        return subprocess.Popen(
            [*under, sys.executable, "-c", "from plughost._cli.main import main; main()", *arguments, *others],
            cwd=self.folder,
            text=True,
            **{
                "env": {**os.environ, "PYTHONPATH": str(self.packages)},
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )

    def serve(self, *arguments: str, **options: Any) -> Serving:
        """Start a host whose standard output is a terminal, and wait until it serves."""
        terminal = Terminal()
        environment = {**os.environ, "PYTHONPATH": str(self.packages), **QUIET}
        environment.pop("COLUMNS", None)
        with lent(terminal) as side:
            process = self.start("serve", "--dev", *arguments, stdout=side, env=environment, **options)
        return Serving(self, process, terminal)

    def on_terminal(self, width: int, *arguments: str) -> list[str]:
        """Run a command on a terminal of a given width; return the shown rows."""
        terminal, side = os.openpty()
        termios.tcsetwinsize(side, (50, width))
        environment = {**os.environ, "PYTHONPATH": str(self.packages), "TERM": "xterm", "NO_COLOR": "1"}
        environment.pop("COLUMNS", None)
        process = self.start(*arguments, stdin=side, stdout=side, stderr=side, env=environment)
        os.close(side)
        shown = b""
        with suppress(OSError):  # a terminal ends with this error
            while chunk := os.read(terminal, 65536):
                shown += chunk
        os.close(terminal)
        process.wait(PATIENCE)
        return re.sub(r"\x1b\[[0-9;]*m|\r", "", shown.decode()).splitlines()


def install_store_plugin(line: Line, name: str) -> None:
    """Install a plugin with a store of its name; all have the same prefix."""
    steps = line.packages / name / "sqlite"
    steps.mkdir(parents=True)
    (steps / "0001_first.sql").write_text(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY);")
    line.install(name, STORE_PLUGIN.replace("NAME", name))


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """A command line."""
    line = Line(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(line.packages))
    own = list(metadata.distributions(name="plughost"))

    def distributions(**given: Any) -> Iterator[metadata.Distribution]:
        if given:
            return iter(list(metadata.Distribution.discover(**given)))
        return iter([*metadata.Distribution.discover(path=[str(line.packages)]), *own])

    monkeypatch.setattr(metadata, "distributions", distributions)
    yield line
    for name in [name for name in sys.modules if name.startswith("cli_")]:
        del sys.modules[name]


class Serving:
    """A host in its own process."""

    def __init__(self, line: Line, process: subprocess.Popen[str], terminal: Terminal) -> None:
        """Wait until it serves."""
        self.line = line
        self.process = process
        self.terminal = terminal
        self.output = ""
        for text in terminal.lines():
            self.output += text
            if "Ctrl+C" in text:
                break
        else:
            pytest.fail(f"it does not serve: {self.output}{process.communicate()[1]}")

    def url(self, site: str = "main") -> str:
        """Return the address of its HTTP listener."""
        row = next(row for row in self.output.splitlines() if row.split()[:1] == [site])
        return next(word for word in row.split() if word.startswith("http://"))

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; return the exit code and standard error."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait until it ends."""
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


@pytest.fixture
def serving(line: Line) -> Iterator[Any]:
    """Return a function that starts hosts, which are stopped after the test."""
    started: list[Serving] = []

    def start(*arguments: str, **options: Any) -> Serving:
        started.append(line.serve(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.send_signal(signal.SIGKILL)
            each.process.communicate()
        each.terminal.close()
