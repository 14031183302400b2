"""Separate environments for operators' commands: a test's installations don't affect others."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
import venv
import zipfile
from contextlib import contextmanager, suppress
from importlib.metadata import Distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

from plughost import Environment, NotRunning
from plughost._runtime.control import send_command
from plughost_packages.pip import pip_command

from .wheels import checkout_wheel, host_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE: Final = 120.0
"""Seconds after which a command that hangs is ended, and the test fails."""

_LAST_LINES: Final = 30
_SETTINGS: Final = """\
# The settings of a test.
data_dir = "data"
grace_time = 10

[sites.main] # one listener is enough
listeners = ["http"]
http_port = 0

[sites.library]
listeners = ["http"]
http_port = 0
"""


class Supplies:
    """The shared contents of sandboxes, made and compiled once instead of by each command.

    Attributes:
        host: A folder with the host and its package management.
        libraries: A folder with all that the tests run on but the host, its plugins and pip.
        pip: A folder with pip.
    """

    def __init__(self, folder: Path) -> None:
        """Create the folders in another one."""
        self.host, self.libraries, self.pip = folder / "host", folder / "libraries", folder / "pip"
        _unpack(host_wheel(folder), self.host)
        _unpack(checkout_wheel(folder, "packages", "0.1.0"), self.host)
        self.libraries.mkdir()
        self.pip.mkdir()
        for key, distribution in Environment().installed.items():
            if not key.startswith("plughost"):
                _link(distribution, self.pip if key == "pip" else self.libraries)
        archive = Path(pip_command()[-1]).parent
        if archive.suffix == ".whl":  # only the pip that comes with Python exists
            _unpack(archive, self.pip)


def _link(distribution: Distribution, folder: Path) -> None:
    for top in {file.parts[0] for file in distribution.files or ()}:
        if top not in {"..", "__pycache__"} and not (folder / top).exists():
            (folder / top).symlink_to(str(distribution.locate_file(top)))


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    compileall.compile_dir(folder, quiet=1)


class Sandbox:
    """A virtual environment with the host and what it requires, and a folder with settings and data.

    Attributes:
        folder: The folder that commands run in.
        site: Where distributions are installed.
        wheels: A folder that pip looks into, and nowhere else.
    """

    def __init__(self, folder: Path, supplies: Supplies, *, empty: bool = False, pip: bool | Path = True) -> None:
        """Make the environment.

        Args:
            folder: Where.
            supplies: What to make it of.
            empty: Leave the host out, and all that it requires.
            pip: Let it have a pip: the tests' own, or that in a folder.
        """
        self._empty = empty
        self.folder = folder / "here"
        self.folder.mkdir(parents=True)
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        venv.create(folder / "venv", symlinks=True)
        scheme = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
        self.site = Path(sysconfig.get_path("purelib", "venv", scheme))
        self._bin = Path(sysconfig.get_path("scripts", "venv", scheme))
        self.python = self._bin / "python"
        # Pip regards the tests' own packages as outside of the environment.
        own = pip if isinstance(pip, Path) else supplies.pip
        outside = [*([own] if pip else []), *([] if empty else [supplies.libraries])]
        (self.site / "outside.pth").write_text("".join(f"{each}\n" for each in outside))
        if not empty:
            shutil.copytree(supplies.host, self.site, dirs_exist_ok=True)
            (self._bin / "plughost").write_text(f"#!{self.python}\nfrom plughost._cli import main\nmain()\n")
            (self._bin / "plughost").chmod(0o755)
        (self.folder / "plughost.toml").write_text(_SETTINGS)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of commands."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PLUGHOST_", "PIP_", "VIRTUAL_ENV", "PYTHON", "LISTEN_"))
        }
        return kept | {
            "PATH": f"{self._bin}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            # All requirements of the host take long to compile, and few of them are imported.
            **({"PIP_NO_COMPILE": "1"} if self._empty else {}),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def pip(self, *arguments: str | Path) -> None:
        """Run pip in the environment."""
        command = [self.python, "-m", "pip", *arguments]
        subprocess.run(list(map(str, command)), env=self.environment, check=True, timeout=PATIENCE, capture_output=True)

    def put(self, *wheels: Path) -> None:
        """Unpack wheels, for tests that are not about installing; pip would be slow."""
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.site)

    def run(self, *arguments: str | Path, code: int = 0, typed: str = "", **environment: str) -> str:
        """Run `plughost` with arguments; return its output, and fail if it ends with another exit code."""
        ended = subprocess.run(
            [self._bin / "plughost", *map(str, arguments)],
            cwd=self.folder,
            env=self.environment | environment,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == code, f"it ended with {ended.returncode}:\n{ended.stdout}"
        return ended.stdout

    @contextmanager
    def running(self, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
        """Run `plughost` with arguments beside a `with` block, and end it at the end of that."""
        command = [str(self._bin / "plughost"), *map(str, arguments)]
        options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, cwd=self.folder, env=self.environment, text=True, **options) as process:
            timer = threading.Timer(PATIENCE, process.kill)
            timer.start()
            try:
                yield process
            finally:
                timer.cancel()
                process.kill()

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        """Run `plughost` with arguments and `--json`; return the result."""
        output = self.run(*arguments, "--json", code=code)
        # If no running host can log it, a command's audit event is on its standard error.
        return json.loads(re.sub(r'^\{"what":.*\n', "", output, flags=re.MULTILINE))

    def files(self) -> dict[str, bytes]:
        """Return every file of the environment that Python has not generated."""
        found = [path for path in self.site.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {str(path.relative_to(self.site)): path.read_bytes() for path in found}

    def versions(self) -> dict[str, str]:
        """Return what is installed in the environment itself."""
        stems = [path.name.removesuffix(".dist-info") for path in self.site.glob("*.dist-info")]
        return dict(stem.split("-") for stem in sorted(stems))

    @contextmanager
    def serving(self, *arguments: str, data: str = "data") -> Iterator[Served]:
        """Run `plughost serve` for the length of a `with` block, on a data folder that may be elsewhere.

        A failure meanwhile includes the end of the host's log.
        """
        log = self.folder.parent / "host.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [self._bin / "plughost", "serve", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        assert process.stdout is not None
        try:
            while not _is_running(self.folder / data):
                assert process.poll() is None, "the host did not start"
                threading.Event().wait(0.02)
            served = Served(self, process, self.folder / data)
            yield served
            served.stop()
        except BaseException as error:
            error.add_note("\n".join(["The last lines of host.log:", *log.read_text().splitlines()[-_LAST_LINES:]]))
            raise
        finally:
            timer.cancel()
            process.stdout.close()
            with suppress(NotRunning, ProcessLookupError):
                os.kill(send_command(self.folder / data, "status")["pid"], signal.SIGKILL)
            if process.poll() is None:
                process.kill()
            process.wait()


class Served:
    """A host in its own process."""

    def __init__(self, sandbox: Sandbox, process: subprocess.Popen[bytes], data: Path) -> None:
        """Wrap the process."""
        self._sandbox = sandbox
        self._data = data
        self.process = process

    def status(self) -> Any:
        """Return the host's answer to `plughost status`."""
        return send_command(self._data, "status")

    def url(self, site: str = "main", scheme: str = "http") -> str:
        """Return the URL of a listener."""
        ports = {(each["site"], each["scheme"]): each["port"] for each in self.status()["listeners"]}
        return f"{scheme}://127.0.0.1:{ports[site, scheme]}"

    def get(self, path: str) -> httpx.Response:
        """Send a GET to a path of the site main."""
        return httpx.get(f"{self.url()}{path}", trust_env=False, timeout=30.0)

    def post(self, path: str, json: Any = None) -> httpx.Response:
        """Send a POST to a path of the site main, with an empty body by default."""
        return httpx.post(f"{self.url()}{path}", json=json, trust_env=False, timeout=30.0)

    def restart(self) -> int:
        """Replace the process, wait until the old one has ended well, and return the new process's id.

        This works once.
        """
        answer = self._sandbox.json("restart")
        assert self.process.wait(PATIENCE) == 0
        return int(answer["pid"])

    def stop(self) -> None:
        """Stop the host, whichever process it is; it must end well."""
        os.kill(send_command(self._data, "status")["pid"], signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.read()  # it ends with the last process
        assert self.process.wait(PATIENCE) == 0


def _is_running(data_dir: Path) -> bool:
    """Return whether a host runs on a data folder: a running host answers any command."""
    try:
        send_command(data_dir, "ping")
    except NotRunning:
        return False
    return True
