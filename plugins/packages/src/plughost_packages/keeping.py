"""Snapshots of an environment, to restore it when an operation fails half-way."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from packaging.utils import canonicalize_name

from plughost import CommandError, Environment
from plughost_packages.ownership import installed_files

if TYPE_CHECKING:
    from plughost import InstalledDistribution

_DEBRIS: Final = "~"  # pip renames folders with this prefix before it removes them
_RESTORED: Final = ".plughost-restored"
_LAST: Final = frozenset({"INSTALLER", "RECORD"})
"""The files of a distribution that are written last: one without them is a half."""


def remove_debris() -> None:
    """Remove the leftovers of a killed command, so that a plan doesn't take them for installed.

    Raises:
        CommandError: Another operation is running.
    """
    with _lock_environment() as changing:
        _remove_debris(changing)


def refuse_halves() -> None:
    """Refuse a dry run, which removes nothing, where it would take the leftovers of a killed command for installed.

    Raises:
        CommandError: There are such leftovers.
    """
    with suppress(OSError):  # nothing was ever changed here, or another user did it
        halves = _halves(_lock_file())
        if halves and sys.prefix != sys.base_prefix:
            raise CommandError(
                f"An unfinished command left a part of {', '.join(path.stem for path in halves)}: run this one without"
                " --dry-run, which removes that first."
            )


def refuse_changing() -> None:
    """Refuse to record what is installed while another operation changes it: something may be missing for a moment.

    Raises:
        CommandError: Another operation is running.
    """
    with suppress(OSError), _lock_file().open("rb") as file:  # none if nothing was ever changed here
        _flock(file.fileno(), fcntl.LOCK_SH)


def _halves(changing: Path) -> list[Path]:
    """Return the metadata folders that a killed command left half-written. `_LAST` were not written yet.

    `changing` names the distributions that it was changing.
    """
    unfinished = set(changing.read_text(encoding="utf-8").split())
    return [
        info
        for info in sorted(each for root in _roots() for each in root.glob("*.dist-info"))
        if canonicalize_name(info.name.split("-")[0]) in unfinished
        and not all((info / name).exists() for name in _LAST)
    ]


def _roots() -> set[Path]:
    return {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}


def _remove_debris(changing: Path) -> None:
    """Remove the leftovers of a killed command in a virtual environment. Other environments are left alone."""
    if sys.prefix == sys.base_prefix:
        return
    found = [*_halves(changing), *(each for root in _roots() for each in root.glob(f"{_DEBRIS}*"))]
    if changing.stat().st_size:  # it may have been restoring: pip never removes a metadata folder with another file
        found += [path for path in _list_files() if path.name.endswith(_RESTORED)]
    for path in found:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def keeping(keys: set[str]) -> Iterator[tuple[Callable[[], None], Callable[[], None], Callable[[], None]]]:
    """Take a snapshot of what an operation adds, replaces or removes.

    Yield a function that restores it, one that restores only files that other distributions have, too, and one to call
    when the files are complete, until which a host does not read them. If the block raises, or is ended by a signal,
    everything is restored.

    Raises:
        CommandError: Another operation is running: only one runs in an environment at a time.
    """
    with (
        _lock_environment() as changing,
        tempfile.TemporaryDirectory(prefix="plughost-kept-") as folder,
        _environment_umask(),
        _handling(_end, signal.SIGTERM, signal.SIGHUP),
    ):
        _remove_debris(changing)
        before, installed = _list_files(), Environment().installed
        files = [path for key in keys & installed.keys() for path in _installed_paths(installed[key]) if path.is_file()]
        copies = {path: Path(shutil.copy2(path, Path(folder, str(number)))) for number, path in enumerate(files)}

        def put_back() -> None:
            with _handling(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                _note(changing, keys)
                _put_back(keys, before, copies)
                _note(changing, ())

        try:
            _note(changing, keys)
            yield put_back, lambda: _put_back_shared(keys, copies), lambda: _note(changing, ())
        except BaseException:
            put_back()
            raise


def _note(changing: Path, keys: Collection[str]) -> None:
    """Write whose files are being changed; hosts wait. A full disk doesn't prevent that some are uninstalled."""
    with suppress(OSError):
        changing.write_text("\n".join(keys), encoding="utf-8")


def _put_back(keys: set[str], before: set[Path], copies: Mapping[Path, Path]) -> None:
    """Remove files that were added, and copy back those that were changed or removed.

    Distributions that another program installed meanwhile stay.
    """
    installed = Environment().installed
    added = {path for key in keys & installed.keys() for path in _installed_paths(installed[key])}
    added |= _list_files() - before
    for path in added - copies.keys() - _paths_of_others(keys):
        path.unlink(missing_ok=True)
        with suppress(OSError):  # it has other files
            os.removedirs(path.parent)
    for path, copy in sorted(copies.items(), key=lambda item: item[0].name in _LAST):
        if not _is_unchanged(path, copy):
            _copy_back(copy, path)


def _put_back_shared(keys: set[str], copies: Mapping[Path, Path]) -> None:
    """Copy back files that were removed and that other distributions have, too, such as an empty `__init__.py`."""
    for path in _paths_of_others(keys) & copies.keys():
        if not path.exists():
            _copy_back(copies[path], path)


def _copy_back(copy: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}{_RESTORED}")
    shutil.copy2(copy, fresh)
    fresh.replace(path)  # not in place: a process may use a compiled module


@contextmanager
def _handling(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Handle some signals differently. Those that this process ignores, as under nohup, stay ignored."""
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, handler)) for number in heeded]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _lock_file() -> Path:
    return Path(sys.prefix, ".plughost.lock")


def _flock(descriptor: int, how: int) -> None:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandError(f"Another command is changing the environment {sys.prefix}; wait for it.") from None


@contextmanager
def _lock_environment() -> Iterator[Path]:
    """Lock the environment. Yield the lock's file, which names the distributions that are being changed."""
    file = _lock_file()
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)  # the host's user reads it
    except OSError as error:
        raise CommandError(f"The environment {sys.prefix} can't be changed: {error.strerror}.") from None
    try:
        _flock(descriptor, fcntl.LOCK_EX)
        os.set_inheritable(descriptor, True)  # pip holds the lock, too: it goes on if this process is killed
        yield file
    finally:
        os.close(descriptor)


@contextmanager
def _environment_umask() -> Iterator[None]:
    """Let whoever can read the environment read new files in it, too: the host's user is seldom who installs."""
    before = os.umask(0o777 & ~Path(sysconfig.get_path("purelib")).stat().st_mode)
    try:
        yield
    finally:
        os.umask(before)


def _list_files() -> set[Path]:
    """Return all files in the folders where distributions are installed."""
    paths = sysconfig.get_paths()
    roots = {Path(paths[name]).resolve() for name in ("purelib", "platlib", "scripts")}
    return {Path(folder, name) for root in roots for folder, _, names in os.walk(root) for name in names}


def _paths_of_others(keys: set[str]) -> set[Path]:
    installed = Environment().installed
    return {path for key in installed.keys() - keys for path in _installed_paths(installed[key])}


def _installed_paths(distribution: InstalledDistribution) -> Iterator[Path]:
    return (path for path, _ in installed_files(distribution))


def _is_unchanged(path: Path, copy: Path) -> bool:
    if not path.is_file():
        return False
    current, saved = path.stat(), copy.stat()
    return (current.st_size, current.st_mtime_ns, current.st_mode) == (saved.st_size, saved.st_mtime_ns, saved.st_mode)
