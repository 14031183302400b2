"""Files that are never half-written. Only the owner can read those with secrets, from the first byte on."""

from __future__ import annotations

import fcntl
import glob
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_TEMPORARY: Final = ".private-tmp"
_LONGEST_WRITE: Final = 3600.0  # seconds


def make_folder(folder: Path) -> None:
    """Make a folder with mode 0700, and its missing parents likewise."""
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


def remove_empty(folder: Path) -> None:
    """Remove a folder that holds nothing but folders. One that holds a file stays as it is."""
    tree = list(os.walk(folder, topdown=False))
    if not any(files for *_, files in tree):
        for path, *_ in tree:
            with suppress(OSError):  # it is in use by now
                Path(path).rmdir()


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, so that only one thread of all processes writes there at a time.

    A missing folder is made with mode 0700. Files that a killed process left half-written are removed.

    Args:
        folder: The folder, which then holds a file `.lock`.

    Raises:
        OSError: The folder cannot be made or written.
    """
    make_folder(folder)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for leftover in folder.glob(f".*{_TEMPORARY}"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, or replace it, in one step. Call it with the folder's lock held.

    Args:
        path: The file. It has its old content until this returns and the new content afterwards, even after a power
            cut.
        content: All of the new content.

    Raises:
        OSError: The file cannot be written, and the old one is untouched; or its folder cannot be synced, and after a
            power cut the content may be either.
    """
    replace_file(path, content, 0o600)


def replace_file(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file as `write_private` does, with another mode and, where this process may, for another owner."""
    temporary = temporary_name(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        if owner is not None:
            with suppress(PermissionError):
                os.chown(temporary, *owner)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)  # the folder holds the name


def temporary_name(path: Path) -> Path:
    """Return a new name beside a file, for writing it first; see `remove_leftovers`."""
    return path.with_name(f"{_prefix(path)}{os.urandom(8).hex()}{_TEMPORARY}")


def _prefix(path: Path) -> str:
    return f".{path.name[:50]}."  # a name has at most 255 bytes, and a character up to 4


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk, so that they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files that killed writers of a file left. Young ones stay: no lock excludes other writers."""
    for leftover in path.parent.glob(f"{glob.escape(_prefix(path))}*{_TEMPORARY}"):
        with suppress(OSError):  # already gone, or another user's
            if time.time() - leftover.lstat().st_mtime > _LONGEST_WRITE:
                leftover.unlink()


def tighten(path: Path, mode: int) -> bool:
    """Restrict a file or folder to its owner. Return whether others had any access.

    Args:
        path: The file or folder. It may be missing.
        mode: The mode to set if others have any access.
    """
    if not path.exists() or not path.stat().st_mode & 0o077:
        return False
    path.chmod(mode)
    return True
