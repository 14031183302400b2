"""A file belongs to one distribution, or to the environment: no other installation overwrites it, no removal takes it.

pip overwrites such a file without a word, and removes it with either of the two.
"""

from __future__ import annotations

import csv
import hashlib
import os
import sysconfig
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost import CommandError
from plughost_packages.verifying import recorded_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from plughost import InstalledDistribution

_PLACES: Final = ("data", "scripts", "purelib", "platlib")
_SCRIPTS: Final = ("console_scripts", "gui_scripts")


def installed_files(distribution: InstalledDistribution) -> Iterator[tuple[Path, str]]:
    """Yield the path of each file of an installed distribution, and its hash in RECORD, which may be empty."""
    root = Path(str(distribution.locate_file(""))).resolve()
    for name, digest in _recorded(distribution) or ((str(each), "") for each in distribution.files or ()):
        yield _join(root, name), digest


def refuse_overwriting(
    wheels: Mapping[str, InstalledDistribution], installed: Mapping[str, InstalledDistribution]
) -> set[str]:
    """Refuse wheels with a file of the environment, or of another distribution unless its content is the same.

    Returns:
        The installed distributions with a file that moves to another wheel. They must be uninstalled first: else pip
        removes it with the old version after it has installed that wheel.

    Raises:
        CommandError: A wheel would overwrite a file, or has a script with a path for a name; the message names it.
    """
    owners = {
        path: (key, digest)
        for key in installed.keys() - wheels.keys()
        for path, digest in installed_files(installed[key])
    }
    replaced = defaultdict[Path, set[str]](set)
    for key in installed.keys() & wheels.keys():
        for path, _ in installed_files(installed[key]):
            replaced[path].add(key)
    moved = set()
    places = [Path(sysconfig.get_path(name)).resolve() for name in _PLACES]
    for key, wheel in wheels.items():
        for path, digest in _files_to_install(wheel):
            owner, same = owners.setdefault(path, (key, digest))
            # The SOURCES.txt of an `.egg-info` names files that were never installed.
            is_there = owner in wheels or path.exists()
            if owner != key and is_there and not (digest and digest == same):
                raise CommandError(
                    f"{wheel.name} {wheel.version} would overwrite {path}, a file of {owner} with other content: pip "
                    f"would remove it with either of the two. Uninstall {owner}, or ask their authors."
                )
            if owner == key and path not in replaced and _is_of_environment(path, digest, places):
                raise CommandError(
                    f"{wheel.name} {wheel.version} would overwrite {path}, a file of the environment. Ask its author."
                )
            moved |= replaced.get(path, set()) - {key}
    return moved


def _is_of_environment(path: Path, digest: str, places: Iterable[Path]) -> bool:
    """Return whether a path is a file such as `bin/python`, `pyvenv.cfg` or one of the operator.

    What a killed pip left is none: scripts, packages, and data with the hash of the wheel's.
    """
    top, scripts, *packages = places
    if not path.is_file() or any(map(path.is_relative_to, packages)):
        return False
    with path.open("rb") as file:
        if path.parent in {top, scripts}:
            return path.is_symlink() or file.read(2) != b"#!"
        return recorded_hash(hashlib.file_digest(file, "sha256")) != digest


def _recorded(distribution: InstalledDistribution) -> list[tuple[str, str]]:
    try:
        rows = list(csv.reader((distribution.read_text("RECORD") or "").splitlines()))
    except csv.Error:  # a damaged RECORD must not hinder the installation of others
        return []
    return [(row[0], row[1]) for row in rows if len(row) > 1]


def _join(root: Path, name: str) -> Path:
    return Path(os.path.normpath(root / name))


def _files_to_install(wheel: InstalledDistribution) -> Iterator[tuple[Path, str]]:
    """Yield the path that pip will give each file of a wheel, and its hash; empty for those that it generates."""
    paths = {name: Path(path).resolve() for name, path in sysconfig.get_paths().items()}
    is_pure = "root-is-purelib: true" in (wheel.read_text("WHEEL") or "").lower()
    root = paths["purelib" if is_pure else "platlib"]
    for name, digest in _recorded(wheel):
        folder, _, rest = name.partition("/")
        scheme, _, inner = rest.partition("/")
        is_data = folder.endswith(".data") and scheme in paths
        yield _join(paths[scheme], inner) if is_data else _join(root, name), digest
    for point in wheel.entry_points:
        if point.group in _SCRIPTS:
            if Path(point.name).name != point.name:
                raise CommandError(
                    f"{wheel.name} {wheel.version} would write the script {point.name!r} outside of the folder of "
                    "scripts. Ask its author."
                )
            yield _join(paths["scripts"], point.name), ""
