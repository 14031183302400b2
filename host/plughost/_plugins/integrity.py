"""Integrity: whether installed distributions are what was installed, by their RECORD (PEP 376)."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost._plugins.discovery import HOST
from plughost._plugins.metadata import record_of

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment
    from plughost._plugins.metadata import InstalledDistribution

_CODE: Final = frozenset({".py", ".pyc", ".so", ".pyd", ".pth", ".sql"})
_VIRTUALENV: Final = ("_virtualenv.pth", "_virtualenv.py")
"""What virtualenv and uv put into an environment; no RECORD has it."""


def altered_files(environment: Environment, keys: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each file that was changed, removed or added since its distribution was installed.

    What is installed in place is left out: its files are meant to change. Whoever can write the files can write RECORD,
    too, so this finds accidents and careless attackers only. Code that belongs to no distribution is looked for in the
    packages of those that are looked through, and wherever the host or a plugin is installed.
    """
    recorded = {key: _rows(environment.installed[key]) for key in environment.installed}
    known = {path for rows in recorded.values() for path in rows}
    labels = {key: f"{environment.name(key)} {version}" for key, version in environment.versions.items()}
    packages: set[Path] = set()
    for key in sorted(keys):
        distribution = environment.installed[key]
        if distribution.is_editable:
            continue
        rows = recorded[key]
        if not rows:
            yield f"{labels[key]}: it has no RECORD, so that nobody can tell whether its files were changed"
        for path, digest in rows.items():
            fault = _fault(path, digest)
            if fault is not None:
                yield f"{labels[key]}: {path} {fault}"
        packages |= {path.parent for path in rows if path.name == "__init__.py"}
    roots = {_root(environment.installed[key]) for key in {HOST, *environment.owners.values()} & set(keys)}
    near = {path.parent: labels[key] for key, rows in recorded.items() for path in rows if path.parent not in roots}
    for path in sorted(_strays(roots, packages, known)):
        yield (
            f"{near[path.parent]}: {path} was added" if path.parent in near else f"{path} was added: it is in no RECORD"
        )


def _root(distribution: InstalledDistribution) -> Path:
    return Path(os.path.normpath(str(distribution.locate_file(""))))


def _rows(distribution: InstalledDistribution) -> dict[Path, str]:
    """Return the hash of each file of a distribution, by absolute path; empty of those that have none."""
    rows = (row for row in record_of(distribution) if len(row) > 1)
    found = {Path(os.path.normpath(str(distribution.locate_file(row[0])))): row for row in rows}
    # Scripts and data outside of the modules' folder may be left out on purpose, as in a container.
    return {path: row[1] for path, row in found.items() if not row[0].startswith("..") or path.exists()}


def _fault(path: Path, stated: str) -> str | None:
    algorithm, _, digest = stated.partition("=")
    if not stated or algorithm not in hashlib.algorithms_guaranteed:
        return None
    try:
        made = hashlib.new(algorithm, path.read_bytes()).digest()
    except FileNotFoundError:
        return None if path.suffix == ".pyc" else "is gone"
    except OSError as error:
        return f"can't be read: {error.strerror}"
    return None if base64.urlsafe_b64encode(made).rstrip(b"=").decode() == digest.rstrip("=") else "was changed"


def _strays(roots: Collection[Path], packages: Collection[Path], known: Collection[Path]) -> set[Path]:
    """Return the code that no distribution brings: each file, or a whole folder where all of it is added."""
    owned = {folder for path in known for folder in path.parents}
    found: set[Path] = set()
    for top in {*roots, *(each for each in packages if each.parent not in packages)}:
        for folder, folders, names in os.walk(top):
            here = Path(folder)
            inner = [here / name for name in folders if name != "__pycache__" and (here != top or name.isidentifier())]
            added = [each for each in inner if each not in owned and (each.is_symlink() or _holds_code(each))]
            folders[:] = [each.name for each in inner if each in owned]
            files = [here / name for name in names if Path(name).suffix in _CODE]
            found.update(added, (each for each in files if each not in known and not _is_virtualenvs(each)))
    return found


def _holds_code(folder: Path) -> bool:
    return any(path.suffix in _CODE for path in folder.rglob("*"))


def _is_virtualenvs(path: Path) -> bool:
    if path.name not in _VIRTUALENV:
        return False
    return path.suffix != ".pth" or path.read_bytes().strip() == b"import _virtualenv"
