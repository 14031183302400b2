"""Bundle: a folder with wheels of a locked set and its lock file, to install from without a network."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from plughost import CommandError
from plughost_packages import pip
from plughost_packages.attesting import SUFFIXES
from plughost_packages.locking import LOCK_NAME, Locked, hash_of, read_lock, write_lock

_ARCHIVES: Final = frozenset({".whl", ".gz", ".bz2", ".xz", ".zip"})  # the files that pip would consider


def bundle(entries: Sequence[Locked], folder: Path, where: Sequence[str], wheels: Path, tell: pip.Tell) -> list[Path]:
    """Make a bundle in a missing or empty folder, completely or not at all. Return its wheels.

    Distributions without a wheel are built. The bundle's lock file has the hashes of its own wheels.

    Raises:
        CommandError: The folder can't be made, or a distribution is not available with a locked hash.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as parent:
            unfinished = Path(parent, "bundle")
            unfinished.mkdir()
            _fetch(_copy_local(entries, wheels, unfinished), unfinished, where, tell)
            write_lock(unfinished / LOCK_NAME, _with_own_hashes(entries, unfinished))
            if folder.exists():
                folder.rmdir()
            unfinished.rename(folder)
    except OSError as error:
        raise CommandError(f"The bundle {folder} can't be made: {error}") from error
    return sorted(folder.glob("*.whl"))


def read_bundle(folder: Path) -> list[Locked]:
    """Return the locked set of a bundle, after checking that its wheels are exactly those of its lock file.

    Raises:
        CommandError: It is no bundle, or its files were changed; the message says what differs.
    """
    lock = folder / LOCK_NAME
    if not lock.is_file():
        raise CommandError(f"{folder} is not a bundle: it has no {LOCK_NAME}.")
    entries = read_lock(lock)
    actual = {hash_of(file): file.name for file in sorted(folder.iterdir()) if file.suffix in _ARCHIVES}
    locked = {each: entry for entry in entries for each in entry.hashes}
    missing = [str(entry) for entry in entries if not actual.keys() & set(entry.hashes)]
    added = [name for known, name in actual.items() if known not in locked or not _is_named(name, locked[known])]
    if missing or added:
        differences = [f"no file has the hash of {each}" for each in missing]
        differences += [f"{name} is not in {LOCK_NAME}, or was changed" for name in added]
        raise CommandError(f"The bundle {folder} was changed after it was made: {'; '.join(differences)}.")
    return entries


def _is_named(file: str, entry: Locked) -> bool:
    try:
        name, version, _, _ = parse_wheel_filename(file)
        locked = Version(entry.version or "")
    except (InvalidWheelFilename, InvalidVersion):
        return False
    return (name, version) == (entry.name, locked)


def refuse_filled(folder: Path) -> None:
    """Refuse a folder that is not empty."""
    if folder.exists() and (not folder.is_dir() or any(os.scandir(folder))):
        raise CommandError(f"{folder} already exists: choose another name, or move it away.")


def _copy_local(entries: Sequence[Locked], wheels: Path, folder: Path) -> list[Locked]:
    """Copy the wheels that are on this machine. Return the entries without one."""
    files = [entry.file for entry in entries if entry.file is not None and entry.file.is_file()]
    by_hash = {hash_of(file): file for file in (*files, *wheels.glob("*.whl")) if file.suffix == ".whl"}
    rest = []
    for entry in entries:
        known = next((each for each in entry.hashes if each in by_hash), None)
        if known is None:
            rest.append(entry)
        else:
            for suffix in ("", *SUFFIXES):
                name = f"{by_hash[known].name}{suffix}"
                if by_hash[known].with_name(name).is_file():
                    shutil.copyfile(by_hash[known].with_name(name), folder / name)
    return rest


def _fetch(entries: Sequence[Locked], folder: Path, where: Sequence[str], tell: pip.Tell) -> None:
    if not entries:
        return
    with tempfile.TemporaryDirectory(prefix="plughost-") as temporary:
        lock = Path(temporary, LOCK_NAME)
        write_lock(lock, entries)
        pip.run(["wheel", "--no-deps", "--require-hashes", "-r", str(lock), "--wheel-dir", str(folder), *where], tell)


def _with_own_hashes(entries: Sequence[Locked], folder: Path) -> list[Locked]:
    """Return the set with the versions and hashes of a bundle's wheels."""
    found = {}
    for wheel in sorted(folder.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(wheel.name)
        found[str(name)] = (str(version), hash_of(wheel))
    return [
        replace(
            entry, version=entry.version or found[entry.name][0], url=None, file=None, hashes=(found[entry.name][1],)
        )
        for entry in entries
    ]
