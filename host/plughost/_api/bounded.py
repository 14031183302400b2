"""Calls with a time limit: a plugin's code is run so that it can't hold or end the host."""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock
from collections.abc import Callable
from time import monotonic
from types import CodeType, TracebackType
from typing import Final, TypeVar

T = TypeVar("T")

_POLL_SECONDS: Final = 0.2
"""How often to check `interrupted`."""


class TookTooLong(Exception):  # noqa: N818 - reads as what happened
    """A plugin's code did not return in time. Its thread is abandoned."""


class NoThread(RuntimeError):  # noqa: N818 - reads as what is missing
    """The system allows no further thread. The function was not called."""


class Interrupted(Exception):  # noqa: N818 - reads as what happened
    """The host is stopping while a plugin's code runs. Its thread is abandoned."""


def never() -> bool:
    """Return False: the default of `interrupted`."""
    return False


def bounded(function: Callable[[], T], seconds: float, name: str, interrupted: Callable[[], bool] = never) -> T:
    """Call a function in its own thread, and wait for it.

    Args:
        function: What to call.
        seconds: How long it may take.
        name: The thread's name.
        interrupted: Called at first and at intervals. If it returns True, the wait ends.

    Returns:
        What the function returned.

    Raises:
        TookTooLong: It has not returned after that time. Its traceback ends where the function is at that moment.
        Interrupted: `interrupted` returned True.
        RuntimeError: The system allows no further thread. The function was not called.
        BaseException: Whatever the function raised, `SystemExit` too. Its `KeyboardInterrupt` becomes a `RuntimeError`,
            since a real one interrupts the caller and never another thread.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    ended = allocate_lock()
    ended.acquire()

    def work() -> None:
        try:
            results.append(function())
        except KeyboardInterrupt as error:
            errors.append(RuntimeError("it raised KeyboardInterrupt").with_traceback(error.__traceback__))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            errors.append(error)
        finally:
            ended.release()

    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(str(error)) from error
    deadline = monotonic() + seconds
    while not interrupted():
        if ended.acquire(timeout=min(max(0.0, deadline - monotonic()), _POLL_SECONDS)):
            if errors:
                raise errors.pop()  # so that its traceback and this frame are no cycle
            return results[0]
        if monotonic() >= deadline:
            current = _current_traceback(thread, work.__code__)
            raise TookTooLong(f"it did not return within {seconds:g} s").with_traceback(current)
    raise Interrupted("the host is stopping")


def _current_traceback(thread: threading.Thread, function_code: CodeType) -> TracebackType | None:
    """Return a traceback of where a thread is inside a function. None if it has just left it."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented, and the only way to ask
    result = None
    while frame is not None and frame.f_code is not function_code:
        result = TracebackType(result, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return result if frame is not None else None
