"""Limits of the system that tests reach on purpose."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path


@contextmanager
def no_descriptors(*, but: int = 0) -> Iterator[None]:
    """Let this process open no further file, `but` a few: it has as many as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        highest = max(int(each.name) for each in Path("/dev/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        with suppress(OSError):
            while True:
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + but, hard))
        yield
