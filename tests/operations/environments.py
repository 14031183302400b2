"""Environments of their own for operators' commands: nothing that a test installs reaches another."""

from __future__ import annotations

import base64
import compileall
import configparser
import hashlib
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
from importlib.metadata import distribution as installed_distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

import plughost
from plughost import Environment, NotRunning
from plughost._runtime.control import is_running, send_command
from plughost_packages.pip import pip_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def build_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    *,
    plugins: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    damaged: bool = False,
    entry_points: str | None = None,
) -> Path:
    """Write a wheel by hand.

    Args:
        folder: Where to.
        name: The distribution's name.
        version: Its version.
        files: Path in the wheel to content.
        plugins: Name to object reference of its plugins.
        requires: What it requires.
        damaged: Spoil the file that holds SPOIL, so that it can't be unpacked to the end.
        entry_points: All of its entry points, in place of the plugins.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = "".join(
        [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", *(f"Requires-Dist: {r}\n" for r in requires)]
    )
    points = "".join(f"{plugin} = {target}\n" for plugin, target in (plugins or {}).items())
    content = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points or f"[plughost.plugins]\n{points}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{stem}-py3-none-any.whl"
    record = ""
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            data = text.encode() if isinstance(text, str) else text
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    if damaged:
        spoiled = wheel.read_bytes().replace(b"SPOIL", b"sPOIL", 1)  # the checksum of that file is wrong now
        assert spoiled != wheel.read_bytes()
        wheel.write_bytes(spoiled)
    return wheel


def host_requirements() -> list[str]:
    """Return what the host requires, as this checkout says."""
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg")
    return config["options"]["install_requires"].split("\n")[1:]


def host_wheel(folder: Path, version: str | None = None) -> Path:
    """Write a wheel of the host as it is in this checkout, as some version."""
    version = version or installed_distribution("plughost").version
    package = Path(plughost.__file__).parent
    sources = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return build_wheel(
        folder,
        "plughost",
        version,
        {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in sources},
        requires=host_requirements(),
        entry_points="[console_scripts]\nplughost = plughost._cli:main\n",
    )


def speaker(folder: Path, name: str, version: str, word: str, **options: Any) -> Path:
    """Write the wheel `plughost-<name>` of a plugin whose route `/<name>` says a word, and how often it was asked."""
    package = f"speaking_{name.replace('-', '_')}"
    source = f"""
from plughost import Operation, Route, RouteGroup, hookimpl


class Say:
    count = 0

    def on_get(self, req, resp):
        self.count += 1
        resp.media = {{"word": {word!r}, "count": self.count}}


@hookimpl
def register_routes(context):
    route = Route("", Say(), {{"GET": Operation(summary="Say a word")}})
    return [RouteGroup(prefix="/{name}", routes=(route,))]
"""
    files = {f"{package}/__init__.py": source, **options.pop("files", {})}
    return build_wheel(folder, f"plughost-{name}", version, files, plugins={name: package}, **options)


def broken(folder: Path, name: str, version: str) -> Path:
    """Write the wheel of a version of a plugin that can't be imported."""
    package = f"speaking_{name.replace('-', '_')}"
    source = "raise RuntimeError('this version is broken')\n"
    return build_wheel(folder, f"plughost-{name}", version, {f"{package}.py": source}, plugins={name: package})


def keeper(folder: Path, version: str) -> Path:
    """Write the wheel of a plugin that keeps notes in a store; version 2.0 migrates it, and answers otherwise."""
    source = f"""
from importlib.resources import files

from plughost import Operation, Route, RouteGroup, Store, hookimpl


def entities(db):
    return db


@hookimpl
def register_stores(context):
    return [Store(name="notes", entities=entities, migrations=files(__package__) / "steps", tables=("notes",))]


@hookimpl
def register_routes(context):
    class Notes:
        def on_get(self, req, resp):
            count = context.stores["notes"].read(lambda db: db.select("select count(*) from notes")[0])
            resp.media = {{"version": {version!r}, "notes": count}}

        def on_post(self, req, resp):
            context.stores["notes"].run(lambda db: db.execute("insert into notes default values") and None)

    operations = {{"GET": Operation(summary="Count"), "POST": Operation(summary="Add")}}
    return [RouteGroup(prefix="/notes", routes=(Route("", Notes(), operations),))]
"""
    steps = {"0001_notes": "CREATE TABLE notes (id INTEGER PRIMARY KEY);"}
    if version != "1.0":
        steps["0002_double"] = "INSERT INTO notes SELECT id + 1000 FROM notes;"  # run twice, it would add again
    files = {f"keeping/steps/sqlite/{name}.sql": sql for name, sql in steps.items()}
    plugin = {"keeping/__init__.py": source, **files}
    return build_wheel(folder, "plughost-keeper", version, plugin, plugins={"keeper": "keeping"})


def checkout_wheel(folder: Path, name: str, version: str, step: str | None = None) -> Path:
    """Write a wheel of a plugin or library of this checkout.

    Args:
        folder: Where to.
        name: Its folder in plugins/.
        version: What it calls itself.
        step: A further migration.
    """
    project = Path(__file__).parents[2] / "plugins" / name
    config = configparser.ConfigParser()
    config.read(project / "setup.cfg")
    package = f"plughost_{name.replace('-', '_')}"
    found = [path for path in (project / "src" / package).rglob("*") if path.suffix in {".py", ".sql", ".typed"}]
    files: dict[str, str | bytes] = {path.relative_to(project / "src").as_posix(): path.read_bytes() for path in found}
    if step is not None:
        files[f"{package}/migrations/sqlite/0002_step.sql"] = step
    points = config.get("options.entry_points", "plughost.plugins", fallback="").split("\n")[1:]
    return build_wheel(
        folder,
        f"plughost-{name}",
        version,
        files,
        plugins=dict(point.split(" = ") for point in points),
        requires=config["options"]["install_requires"].split("\n")[1:],
    )


class Supplies:
    """What sandboxes have in common; made and compiled once, it need not be by each command.

    Attributes:
        host: A folder with the host and its package management.
        libraries: A folder with all that the tests run on but the host, its plugins and pip.
        pip: A folder with pip.
    """

    def __init__(self, folder: Path) -> None:
        """Make the folders in another one."""
        self.host, self.libraries, self.pip = folder / "host", folder / "libraries", folder / "pip"
        _unpack(host_wheel(folder), self.host)
        _unpack(checkout_wheel(folder, "packages", "0.1.0"), self.host)
        self.libraries.mkdir()
        self.pip.mkdir()
        for key, distribution in Environment().installed.items():
            if not key.startswith("plughost"):
                _link(distribution, self.pip if key == "pip" else self.libraries)
        archive = Path(pip_command()[-1]).parent
        if archive.suffix == ".whl":  # there is only the pip that comes with Python
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
        # What is there as the tests have it is to pip outside of the environment.
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
        """The environment of commands."""
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
            # All that the host requires takes long to compile, and little of it is imported.
            **({"PIP_NO_COMPILE": "1"} if self._empty else {}),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def pip(self, *arguments: str | Path) -> None:
        """Run pip in the environment."""
        command = [self.python, "-m", "pip", *arguments]
        subprocess.run(list(map(str, command)), env=self.environment, check=True, timeout=PATIENCE, capture_output=True)

    def put(self, *wheels: Path) -> None:
        """Have distributions installed from wheels, for tests that are not about installing; pip would take long."""
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.site)

    def run(self, *arguments: str | Path, code: int = 0, typed: str = "", **environment: str) -> str:
        """Run `plughost` with arguments; return what it printed, and fail where it ends otherwise than with a code."""
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

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        """Run `plughost` with arguments and `--json`; return what it told."""
        told = self.run(*arguments, "--json", code=code)
        # Where no host runs that could log it, a command's audit event is on its standard error.
        return json.loads(re.sub(r'^\{"what":.*\n', "", told, flags=re.MULTILINE))

    def files(self) -> dict[str, bytes]:
        """Return every file of the environment that Python has not made by itself."""
        found = [path for path in self.site.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {str(path.relative_to(self.site)): path.read_bytes() for path in found}

    def versions(self) -> dict[str, str]:
        """Return what is installed in the environment itself."""
        stems = [path.name.removesuffix(".dist-info") for path in self.site.glob("*.dist-info")]
        return dict(stem.split("-") for stem in sorted(stems))

    @contextmanager
    def serving(self, *arguments: str, data: str = "data") -> Iterator[Served]:
        """Run `plughost serve` for the length of a `with` block, on a data folder that is named where it is another.

        What fails meanwhile says how the host's log ends.
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
            while not is_running(self.folder / data):
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
    """A host that runs in a process of its own."""

    def __init__(self, sandbox: Sandbox, process: subprocess.Popen[bytes], data: Path) -> None:
        """Wrap the process."""
        self._sandbox = sandbox
        self._data = data
        self.process = process

    def status(self) -> Any:
        """Return what the host tells `plughost status`."""
        return send_command(self._data, "status")

    def url(self, site: str = "main", scheme: str = "http") -> str:
        """Return the URL of a listener."""
        ports = {(each["site"], each["scheme"]): each["port"] for each in self.status()["listeners"]}
        return f"{scheme}://127.0.0.1:{ports[site, scheme]}"

    def get(self, path: str) -> httpx.Response:
        """Ask for a path of the site main."""
        return httpx.get(f"{self.url()}{path}", trust_env=False, timeout=30.0)

    def post(self, path: str, json: Any = None) -> httpx.Response:
        """Post to a path of the site main; nothing, by default."""
        return httpx.post(f"{self.url()}{path}", json=json, trust_env=False, timeout=30.0)

    def restart(self) -> int:
        """Let another process take its place, and wait until the old one has ended, and well; return the new one's id.

        It may be done once.
        """
        answer = self._sandbox.json("restart")
        assert self.process.wait(PATIENCE) == 0
        return int(answer["pid"])

    def stop(self) -> None:
        """Stop it, whatever process it is now; it must end well."""
        os.kill(send_command(self._data, "status")["pid"], signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.read()  # ends when the last process has
        assert self.process.wait(PATIENCE) == 0
