"""Memory: give back what a generation held that is gone."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_M_ARENA_MAX: Final = -8  # of glibc's malloc.h


def share_arenas() -> None:
    """Let threads share two of malloc's arenas where the C library is glibc, which else makes up to eight a core.

    A reload calls hooks in threads that come and go, and what is left in the arena of each can't be given back: after
    a thousand reloads a host held 20 MB more than at first; so it holds the same. It is for the process to decide,
    before its threads begin.
    """
    limit = getattr(ctypes.CDLL(None), "mallopt", None)
    if limit is not None:
        limit(_M_ARENA_MAX, 2)


def set_aside() -> None:
    """Leave all that there is now out of later collections: it lives as long as the generation that serves.

    Looking through it again and again took two hundredths of the time of a small request. `give_back` looks at it all.
    It is for the process to decide, once it serves.
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Collect what nobody uses any more, and return its memory to the system where the C library offers that.

    A generation is full of cycles, and is built by several threads: left to themselves, Python collects it late, and
    glibc keeps its memory in pieces, an arena for each thread, so that a host grows a little with each reload.
    """
    aside = gc.get_freeze_count()
    gc.unfreeze()
    gc.collect()
    if aside:
        gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
