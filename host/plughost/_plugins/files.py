"""Files: whether installed distributions are what was installed, by their RECORD (PEP 376)."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment
    from plughost._plugins.metadata import InstalledDistribution

_CODE: Final = frozenset({".py", ".so", ".pyd", ".pth", ".sql"})


def altered_files(environment: Environment, keys: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each file that was changed, removed or added since its distribution was installed.

    What is installed in place is left out: its files are meant to change. Whoever can write the files can write RECORD,
    too, so this finds accidents and careless attackers only.

    Args:
        environment: What is installed.
        keys: Normalised names of the distributions to look through.
    """
    recorded = {key: _rows(environment.installed[key]) for key in environment.installed}
    known = {path for rows in recorded.values() for path in rows}
    for key in sorted(keys):
        distribution = environment.installed[key]
        if distribution.is_editable:
            continue
        label = f"{environment.name(key)} {environment.versions[key]}"
        rows = recorded[key]
        if not rows:
            yield f"{label}: it has no RECORD, so that nobody can tell whether its files were changed"
        for path, digest in rows.items():
            fault = _fault(path, digest)
            if fault is not None:
                yield f"{label}: {path} {fault}"
        yield from (f"{label}: {path} was added" for path in _code_beside(rows) if path not in known)


def _rows(distribution: InstalledDistribution) -> dict[Path, str]:
    """Return the hash of each file of a distribution, by absolute path; empty of those that have none."""
    try:
        rows = [row for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()) if len(row) > 1]
    except csv.Error:
        return {}
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


def _code_beside(rows: Collection[Path]) -> Iterator[Path]:
    """Yield the code in a distribution's packages, whether it is of theirs or not."""
    packages = {path.parent for path in rows if path.name == "__init__.py"}
    tops = {each for each in packages if each.parent not in packages}
    for top in sorted(tops):
        for folder, _, names in os.walk(top):
            yield from (Path(folder, name) for name in sorted(names) if Path(name).suffix in _CODE)
