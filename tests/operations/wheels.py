"""Wheels that tests write themselves: of the host, of this checkout's plugins, and of small test plugins."""

from __future__ import annotations

import base64
import configparser
import hashlib
import zipfile
from importlib.metadata import distribution as installed_distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plughost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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
        spoiled = wheel.read_bytes().replace(b"SPOIL", b"sPOIL", 1)  # the file's checksum is wrong now
        assert spoiled != wheel.read_bytes()
        wheel.write_bytes(spoiled)
    return wheel


def host_requirements() -> list[str]:
    """Return the host's requirements in this checkout."""
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg")
    return config["options"]["install_requires"].split("\n")[1:]


def host_wheel(folder: Path, version: str | None = None) -> Path:
    """Write a wheel of this checkout's host, as a given version."""
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


def speaker_wheel(folder: Path, name: str, version: str, word: str, **options: Any) -> Path:
    """Write the wheel `plughost-<name>`, whose route `/<name>` answers with a word and the number of requests."""
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


def broken_wheel(folder: Path, name: str, version: str) -> Path:
    """Write the wheel of a plugin version that can't be imported."""
    package = f"speaking_{name.replace('-', '_')}"
    source = "raise RuntimeError('this version is broken')\n"
    return build_wheel(folder, f"plughost-{name}", version, {f"{package}.py": source}, plugins={name: package})


def store_wheel(folder: Path, version: str, dialect: str = "sqlite") -> Path:
    """Write the wheel of a plugin with notes in a store; version 2.0 migrates it, and answers differently."""
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
        steps["0002_double"] = "INSERT INTO notes SELECT id + 1000 FROM notes;"  # a second run would add it again
    files = {f"keeping/steps/{dialect}/{name}.sql": sql for name, sql in steps.items()}
    plugin = {"keeping/__init__.py": source, **files}
    return build_wheel(folder, "plughost-keeper", version, plugin, plugins={"keeper": "keeping"})


def checkout_wheel(
    folder: Path, name: str, version: str | None = None, *, step: str | None = None, **changes: tuple[str, str]
) -> Path:
    """Write a wheel of a plugin or library of this checkout.

    Args:
        folder: Where to.
        name: Its folder in plugins/.
        version: A version to give it instead of its own.
        step: A further migration.
        **changes: Module of the package to a text of it and what is to stand in its place.
    """
    project = Path(__file__).parents[2] / "plugins" / name
    config = configparser.ConfigParser(interpolation=None)
    config.read(project / "setup.cfg")
    package = f"plughost_{name.replace('-', '_')}"
    files: dict[str, str | bytes] = {
        path.relative_to(project / "src").as_posix(): path.read_bytes()
        for path in (project / "src" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for module, (old, new) in changes.items():
        text = (project / "src" / package / f"{module}.py").read_text()
        assert old in text, f"{module} has no {old!r}"
        files[f"{package}/{module}.py"] = text.replace(old, new)
    if step is not None:
        files[f"{package}/migrations/sqlite/0002_step.sql"] = step
    points = config["options.entry_points"] if config.has_section("options.entry_points") else {}
    return build_wheel(
        folder,
        f"plughost-{name}",
        version or config["metadata"]["version"],
        files,
        requires=config["options"]["install_requires"].strip().split("\n"),
        entry_points="".join(f"[{group}]{lines}\n" for group, lines in points.items()),
    )


def rewrite(wheel: Path, change: Callable[[dict[str, bytes]], Any], kind: int = zipfile.ZIP_STORED) -> None:
    """Change the files of a wheel, which stays a valid archive."""
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    change(content)
    with zipfile.ZipFile(wheel, "w", kind) as archive:
        for name, data in content.items():
            archive.writestr(name, data)


def record_of(content: dict[str, bytes]) -> str:
    """Return the path of the RECORD."""
    return next(name for name in content if name.endswith("/RECORD"))


def code_of(content: dict[str, bytes]) -> str:
    """Return the path of a module."""
    return next(name for name in content if name.endswith("__init__.py"))


def own_record(content: dict[str, bytes]) -> None:
    """Update RECORD to match, like a careful attacker."""
    record = record_of(content)
    rows = ""
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows += f"{name},sha256={digest},{len(data)}\n" if name != record else f"{name},,\n"
    content[record] = rows.encode()
