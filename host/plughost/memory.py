"""Memory: give back what a generation held that is gone."""

from __future__ import annotations

import ctypes
import gc


def give_back() -> None:
    """Collect what nobody uses any more, and return its memory to the system where the C library offers that.

    A generation is full of cycles, and is built by several threads: left to themselves, Python collects it late, and
    glibc keeps its memory in pieces, an arena for each thread, so that a host grows a little with each reload.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
