"""The stacks of threads that run plugins' code."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the size of a thread's stack")
def test_threads_have_a_sufficient_stack_where_the_system_gives_less() -> None:
    """As on musl: with 1 MiB, recursive C code for deeply nested JSON crashes Python 3.13."""
    program = ["sh", "-c", 'ulimit -Ss 1024; exec "$@"', "sh", sys.executable, "-m", "tests.stacks"]
    sizes = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    assert len(sizes) == 3
    assert all(int(size) >= 8 * 1024 * 1024 for size in sizes)
