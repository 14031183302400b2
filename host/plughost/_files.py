"""Files that are never half-written; those that hold secrets only their owner may read, from the first byte on."""

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
    """Make a folder that only its owner can look into, and those above it that are missing likewise."""
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, so that of all threads and processes only one writes there at a time.

    The folder is made with mode 0700 where it is missing. What a killed process left half-written is removed.

    Args:
        folder: The folder, which then holds a file `.lock`.

    Raises:
        OSError: The folder cannot be made or written.
    """
    make_folder(folder)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in folder.glob(f".*{_TEMPORARY}"):
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, or replace it, in one step. Call it with the folder's lock held.

    Args:
        path: The file. Until this returns it has its old content, afterwards the new one, whatever happens to the
            machine's power.
        content: All of the new content.

    Raises:
        OSError: The file cannot be written, and the old one is untouched, or its folder cannot be made to last, and
            after a power cut it may be either.
    """
    replace_file(path, content, 0o600)


def replace_file(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file as `write_private` does, with another mode and, where this process may, for another owner."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}{_TEMPORARY}")
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
    sync(path.parent)  # which has the name


def sync(path: Path) -> None:
    """Have what a file holds, or the names in a folder, outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove what processes that were killed left of writing a file, where no lock keeps others from writing it now."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{_TEMPORARY}"):
        with suppress(OSError):  # it is gone, or another user's
            if time.time() - left.lstat().st_mtime > _LONGEST_WRITE:
                left.unlink()


def tighten(path: Path, mode: int) -> bool:
    """Take away what others may do with a file or folder, and return whether they could do anything.

    Args:
        path: What to look at. It may be missing.
        mode: The mode that it has afterwards if others could do anything with it.
    """
    if not path.exists() or not path.stat().st_mode & 0o077:
        return False
    path.chmod(mode)
    return True
