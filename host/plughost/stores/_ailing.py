"""Telling the log once why operations of a store fail, and once that it is well again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import structlog

    from plughost.stores._errors import StoreError


@dataclass(frozen=True, slots=True)
class _Ailment:
    """What fails.

    Attributes:
        since: When it first failed, by the monotonic clock.
        writes: Whether an operation that writes failed; one that only reads then tells nothing of it.
    """

    since: float
    writes: bool


class Ailing:
    """Knows whether the operations of an open store fail, as on a disk that is full."""

    def __init__(self, logger: structlog.stdlib.BoundLogger, place: str) -> None:
        """Be well.

        Args:
            logger: Told, with the store and its plugin bound.
            place: Where the store is.
        """
        self._logger = logger
        self._place = place
        self.ailment: _Ailment | None = None

    def failed(self, error: StoreError, *, writes: bool) -> None:
        """Take note that an operation failed for a reason outside of it."""
        if self.ailment is None:
            self.ailment = _Ailment(time.monotonic(), writes)
            what = "the store can't be written" if writes else "the store can't be read"
            self._logger.error(what, reason=str(error), place=self._place)

    def succeeded(self, *, writes: bool) -> None:
        """Take note that an operation succeeded; call it only where there is an ailment."""
        ailment = self.ailment
        if ailment is not None and writes >= ailment.writes:
            self.ailment = None
            seconds = round(time.monotonic() - ailment.since, 1)
            self._logger.warning("the store is well again", place=self._place, seconds=seconds)
