"""Isolation: run a plugin's code so that neither what it raises nor how long it takes harms the host."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic
from types import CodeType, TracebackType
from typing import Final, TypeVar

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.2
"""How often to ask whether somebody still wants the result."""


class TookTooLong(Exception):  # noqa: N818 - reads as what happened
    """A plugin's code did not return in time. Its thread is left to itself."""


class Interrupted(Exception):  # noqa: N818 - reads as what happened
    """Nobody waits for a plugin's code any more, since the host is stopping. Its thread is left to itself."""


def never() -> bool:
    """Tell that nothing interrupts."""
    return False


def bounded(function: Callable[[], T], seconds: float, name: str, interrupted: Callable[[], bool] = never) -> T:
    """Call a function in a thread of its own and wait for it.

    Args:
        function: What to call.
        seconds: How long it may take.
        name: What the thread is called.
        interrupted: Asked now and then whether to wait no longer.

    Returns:
        What the function returned.

    Raises:
        TookTooLong: It has not returned after that time. Its traceback ends where the function is at that moment.
        Interrupted: There is no use in waiting any longer.
        BaseException: Whatever the function raised, `SystemExit` too. A `KeyboardInterrupt` as a `RuntimeError`,
            since a real one interrupts the caller, and never another thread.
    """
    from concurrent.futures import Future, wait  # noqa: PLC0415 - brings logging, which `import plughost` does not need

    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(function())
        except KeyboardInterrupt as error:
            outcome.set_exception(RuntimeError("it raised KeyboardInterrupt").with_traceback(error.__traceback__))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the caller waits
            outcome.set_exception(error)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    until = monotonic() + seconds
    while not outcome.done():
        if interrupted():
            raise Interrupted("the host is stopping")
        left = until - monotonic()
        if left <= 0:
            reached = _traceback_of(thread, work.__code__)
            raise TookTooLong(f"it did not return within {seconds:g} s").with_traceback(reached)
        wait([outcome], min(left, _LOOK_SECONDS))
    return outcome.result()


def _traceback_of(thread: threading.Thread, since: CodeType) -> TracebackType | None:
    """Return where a thread is inside of a function, as if it had raised there; None where it has just left it."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented, and the only way to ask
    found = None
    while frame is not None and frame.f_code is not since:
        found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return found if frame is not None else None
