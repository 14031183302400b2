"""Keeping: put an environment back as it was when an operation on it fails half-way."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost import CommandError, Environment

if TYPE_CHECKING:
    from importlib import metadata

_DEBRIS: Final = "~"  # what the names of folders begin with that pip has moved aside


def remove_debris() -> list[str]:
    """Remove what a pip that was killed has left in a virtual environment; elsewhere somebody else may look after it.

    Returns:
        The names of the folders.
    """
    if sys.prefix == sys.base_prefix:
        return []
    paths = sysconfig.get_paths()
    left = [path for root in {paths["purelib"], paths["platlib"]} for path in Path(root).glob(f"{_DEBRIS}*")]
    for path in left:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return sorted(path.name for path in left)


class Kept:
    """Copies of the files of some distributions, and the knowledge which other files there were."""

    def __init__(self, folder: Path, keys: Collection[str]) -> None:
        """Copy the files.

        Args:
            folder: Where to; it is empty.
            keys: Normalised names of the distributions that an operation adds, replaces or removes.
        """
        self._keys = frozenset(keys)
        self._before = _files()
        self._copies: dict[Path, Path] = {}
        environment = Environment()
        for key in sorted(self._keys & environment.installed.keys()):
            for path in _owned(environment.installed[key]):
                if path.is_file():
                    self._copies[path] = folder / str(len(self._copies))
                    shutil.copy2(path, self._copies[path])

    def put_back(self) -> None:
        """Make the environment what it was: remove what has come since, and put back what was changed or removed.

        Whatever somebody else has installed meanwhile stays.

        Raises:
            OSError: A file can't be removed or written.
        """
        installed = Environment().installed
        others = {path for key, each in installed.items() if key not in self._keys for path in _owned(each)}
        come = {path for key in self._keys & installed.keys() for path in _owned(installed[key])}
        come |= _files() - self._before - others
        for path in come - self._copies.keys():
            path.unlink(missing_ok=True)
            _remove_empty(path.parent)
        for path, copy in self._copies.items():
            if not _same(path, copy):
                path.parent.mkdir(parents=True, exist_ok=True)
                fresh = path.with_name(f"{path.name}.plughost-restored")
                shutil.copy2(copy, fresh)
                fresh.replace(path)  # a compiled module that a process uses must not change under it


@contextmanager
def keeping(keys: Collection[str]) -> Iterator[Kept]:
    """Keep what an operation is about to change, and put it back when the block raises.

    Only one such operation runs in an environment at a time.

    Args:
        keys: Normalised names of the distributions that are added, replaced or removed.

    Raises:
        CommandError: Another operation is under way.
    """
    with _alone(), tempfile.TemporaryDirectory(prefix="plughost-kept-") as folder:
        remove_debris()
        kept = Kept(Path(folder), keys)
        try:
            yield kept
        except BaseException:
            kept.put_back()
            raise


@contextmanager
def _alone() -> Iterator[None]:
    try:
        descriptor = os.open(Path(sys.prefix, ".plughost.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandError(f"The environment {sys.prefix} can't be changed: {error.strerror}.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CommandError(f"Another command is changing the environment {sys.prefix}; wait for it.") from None
    finally:
        os.close(descriptor)


def _files() -> set[Path]:
    """Return every file where distributions are installed."""
    paths = sysconfig.get_paths()
    roots = {Path(paths[name]) for name in ("purelib", "platlib", "scripts")}
    return {Path(folder, name) for root in roots for folder, _, names in os.walk(root) for name in names}


def _owned(distribution: metadata.Distribution) -> Iterator[Path]:
    for file in distribution.files or ():
        yield Path(os.path.normpath(str(distribution.locate_file(file))))


def _same(path: Path, copy: Path) -> bool:
    if not path.is_file():
        return False
    now, then = path.stat(), copy.stat()
    return (now.st_size, now.st_mtime_ns, now.st_mode) == (then.st_size, then.st_mtime_ns, then.st_mode)


def _remove_empty(folder: Path) -> None:
    """Remove a folder and those above it, as long as they are empty."""
    with suppress(OSError):
        while True:
            folder.rmdir()
            folder = folder.parent
