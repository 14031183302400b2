"""Integrity: compare installed files with the RECORD of their distributions (PEP 376)."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost._plugins.distributions import record_of
from plughost._plugins.environment import HOST

if TYPE_CHECKING:
    from plughost._plugins.distributions import InstalledDistribution
    from plughost._plugins.environment import Environment

_CODE_SUFFIXES: Final = frozenset({".py", ".pyc", ".so", ".pyd", ".pth", ".sql"})
_VIRTUALENV_FILES: Final = ("_virtualenv.pth", "_virtualenv.py")
"""Files that virtualenv and uv add to an environment, in no RECORD."""
_PIPX_FLAG: Final = re.compile(rb"(#!\S+) -E(?=\n)")
"""What pipx adds to the first line of commands, so that Python ignores PYTHONPATH and the like."""


def altered_files(environment: Environment, keys: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each file that was changed, removed or added since its distribution was installed.

    Editable installs are skipped: their files are meant to change. Whoever can write the files can write RECORD, too,
    so this finds only accidents and careless attackers. Code of no distribution is searched in the packages of these
    distributions, and in the folders where the host and these plugins are installed.
    """
    recorded = {key: _recorded_hashes(environment.installed[key]) for key in environment.installed}
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
            if (problem := _file_problem(path, digest)) is not None:
                yield f"{labels[key]}: {path} {problem}"
        packages |= {path.parent for path in rows if path.name == "__init__.py"}
    roots = {_path(environment.installed[key], "") for key in {HOST, *environment.owners.values()} & set(keys)}
    label_by_folder = {
        path.parent: labels[key] for key, rows in recorded.items() for path in rows if path.parent not in roots
    }
    for path in sorted(_unrecorded_code(roots, packages, known)):
        label = label_by_folder.get(path.parent)
        yield f"{label}: {path} was added" if label else f"{path} was added: it is in no RECORD"


def _path(distribution: InstalledDistribution, name: str) -> Path:
    return Path(os.path.normpath(str(distribution.locate_file(name))))


def _recorded_hashes(distribution: InstalledDistribution) -> dict[Path, str]:
    """Return the recorded hash of each file of a distribution, by absolute path; empty if it has none."""
    found = {_path(distribution, row[0]): row for row in record_of(distribution) if len(row) > 1}
    # Scripts and data outside the modules' folder may be missing on purpose, as in a container.
    return {path: row[1] for path, row in found.items() if not row[0].startswith("..") or path.exists()}


def _file_problem(path: Path, recorded: str) -> str | None:
    algorithm, _, digest = recorded.partition("=")
    if not recorded or algorithm not in hashlib.algorithms_guaranteed:
        return None
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None if path.suffix == ".pyc" else "is gone"
    except OSError as error:
        return f"can't be read: {error.strerror}"
    accepted = [content]
    if flagged := _PIPX_FLAG.match(content):
        accepted.append(flagged[1] + content[flagged.end() :])
    actual = [base64.urlsafe_b64encode(hashlib.new(algorithm, each).digest()).decode() for each in accepted]
    return None if digest.rstrip("=") in {each.rstrip("=") for each in actual} else "was changed"


def _unrecorded_code(roots: Collection[Path], packages: Collection[Path], known: Collection[Path]) -> set[Path]:
    """Return the code in no RECORD: files, or a folder if no file in it is recorded."""
    owned = {folder for path in known for folder in path.parents}
    found: set[Path] = set()
    for start in {*roots, *(each for each in packages if each.parent not in packages)}:
        for folder, folders, names in os.walk(start):
            parent = Path(folder)
            subfolders = [
                parent / name for name in folders if name != "__pycache__" and (parent != start or name.isidentifier())
            ]
            added = [each for each in subfolders if each not in owned and (each.is_symlink() or _holds_code(each))]
            folders[:] = [each.name for each in subfolders if each in owned]
            files = [parent / name for name in names if Path(name).suffix in _CODE_SUFFIXES]
            found.update(added, (each for each in files if each not in known and not _is_virtualenv_file(each)))
    return found


def _holds_code(folder: Path) -> bool:
    return any(path.suffix in _CODE_SUFFIXES for path in folder.rglob("*"))


def _is_virtualenv_file(path: Path) -> bool:
    if path.name not in _VIRTUALENV_FILES:
        return False
    return path.suffix != ".pth" or path.read_bytes().strip() == b"import _virtualenv"
