"""A terminal for the standard output of a process, read by the test."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

QUIET: Final[Mapping[str, str]] = {"TERM": "dumb", "NO_COLOR": "1"}
"""The environment of a process that writes no escape sequences to a terminal."""


class Terminal:
    """A terminal of 200 columns, which is closed with what reads it."""

    def __init__(self) -> None:
        """Open it."""
        self._ours, self.side = os.openpty()
        termios.tcsetwinsize(self.side, (50, 200))
        attributes = termios.tcgetattr(self.side)
        attributes[1] &= ~termios.OPOST  # a line ends with a line feed alone
        termios.tcsetattr(self.side, termios.TCSANOW, attributes)

    def lines(self) -> Iterator[str]:
        """Yield what is written, line by line, until every process that has it ends."""
        rest = b""
        with suppress(OSError):  # which is how a terminal ends
            while chunk := os.read(self._ours, 65536):
                *complete, rest = (rest + chunk).split(b"\n")
                yield from (f"{line.decode()}\n" for line in complete)

    def close(self) -> None:
        """Close it."""
        os.close(self._ours)


@contextmanager
def lent(terminal: Terminal) -> Iterator[int]:
    """Lend the other side to a process that is started in the block."""
    try:
        yield terminal.side
    finally:
        os.close(terminal.side)
