"""Telling whoever takes turns with this thread that it is about to wait, so that another goes on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final


class _Thread(threading.local):
    """What this thread does for a dispatcher.

    Attributes:
        job: The number of its job.
        waits: Whether it gave its turn away during this job.
        give_way: Gives its turn away, if it has it; None in a thread that takes no turns.
    """

    job = 0
    waits = False
    give_way: Callable[[bool], None] | None = None


this_thread: Final = _Thread()


def about_to_wait(*, long: bool = False) -> None:
    """Give the turn of this thread away, before it waits for a disk, another thread, or code that needs no lock.

    The request doesn't count against the plugin's share of threads then; at most 16 of a plugin do so at once.

    Args:
        long: It takes many milliseconds, so that the turn is given away though nobody waits for it now.
    """
    if this_thread.give_way is not None:
        this_thread.give_way(long)
