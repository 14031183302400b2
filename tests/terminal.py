"""A terminal for a process's standard output, which the test reads."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

QUIET: Final[Mapping[str, str]] = {"TERM": "dumb", "NO_COLOR": "1"}
"""The environment of a process that writes no escape sequences to a terminal."""


class Terminal:
    """A terminal of 200 columns."""

    def __init__(self) -> None:
        """Open it."""
        self._ours, self.side = os.openpty()
        termios.tcsetwinsize(self.side, (50, 200))
        attributes = termios.tcgetattr(self.side)
        attributes[1] &= ~termios.OPOST  # end lines with a line feed only
        termios.tcsetattr(self.side, termios.TCSANOW, attributes)

    def lines(self) -> Iterator[str]:
        """Yield the output line by line, until every process on the terminal has ended."""
        rest = b""
        with suppress(OSError):  # this is how a terminal ends
            while chunk := os.read(self._ours, 65536):
                *complete, rest = (rest + chunk).split(b"\n")
                yield from (f"{line.decode()}\n" for line in complete)

    def close(self) -> None:
        """Close the test's side."""
        os.close(self._ours)


@contextmanager
def lent(terminal: Terminal) -> Iterator[int]:
    """Give the process's side to a process that is started in the block."""
    try:
        yield terminal.side
    finally:
        os.close(terminal.side)
