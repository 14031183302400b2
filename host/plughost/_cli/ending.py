"""The end of a command's process, which nothing that plugins leave at work may hold up."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, TextIO

import click

_EXIT_CODE: Final = 1
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_STDERR: Final = 2
_ROOM_SECONDS: Final = 1.0
INTERRUPT: Final = signal.SIGURG
"""A signal that interrupts the writes of `drop_unread` if it has a handler."""


def limit_exit(seconds: float, report: Callable[[str], None]) -> None:
    """Let this process end some seconds after its command, whatever plugins left that Python waits for.

    A command that other code calls, as tests do, is not the whole process: then this does nothing.

    Args:
        seconds: The time from the end of the command, with all its output written.
        report: Called with the reason if the process has not ended by then.
    """
    context = click.get_current_context(silent=True)
    at_exit = context.find_root().obj if context is not None else None
    if isinstance(at_exit, ExitStack):
        at_exit.callback(_start_timer, seconds, report)


def _start_timer(seconds: float, report: Callable[[str], None]) -> None:
    def end() -> None:
        try:
            own = {threading.main_thread(), threading.current_thread()}
            names = sorted(thread.name for thread in threading.enumerate() if thread not in own)
            report(
                f"The process did not end within {seconds:g} s (setting hook_timeout): a plugin left a thread pool, a "
                f"child process or a function of atexit at work. Threads: {', '.join(names) or 'none'}."
            )
        finally:
            os._exit(_EXIT_CODE)

    _flush_or_silence(sys.stdout)
    _flush_or_silence(sys.stderr)
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    with suppress(RuntimeError):  # the system allows no further thread
        timer.start()


def fail_without_room(error: OSError) -> None:
    """End a command whose output, or a file that it writes, finds no room; return if the error has another cause."""
    if error.errno in _NO_ROOM:
        _flush_or_silence(sys.stdout)
        place = error.filename2 or error.filename or "its output, or a file"  # the second is where a copy goes
        click.echo(f"Error: The command can't write {place}: {error.strerror}.", err=True)
        raise SystemExit(_EXIT_CODE) from error


def drop_unread() -> None:
    """From now on, drop what is written to standard error, once its reader makes no room for a second.

    Safe in a signal handler. Threads that wait in a write already are interrupted by `INTERRUPT`, and try again.
    """
    with suppress(RuntimeError):  # the system allows no further thread
        start_new_thread(_drop_unread, ())  # `threading` takes a lock that this thread may hold


def _drop_unread() -> None:
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    while poll.poll(_ROOM_SECONDS * 1000):
        time.sleep(_ROOM_SECONDS)
    _silence(_STDERR)
    for thread in sys._current_frames():  # noqa: SLF001 - documented; it has threads that Python did not start, too
        with suppress(ProcessLookupError):  # it has just ended
            signal.pthread_kill(thread, INTERRUPT)


def _flush_or_silence(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:  # nobody reads it, or it has no room, and for that, Python's last flush would exit with code 120
        _silence(stream.fileno())


def _silence(descriptor: int) -> None:
    """Redirect a stream to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
