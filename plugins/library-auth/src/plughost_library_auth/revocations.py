"""Revoked tokens: known to each host that shares the store within a second, and looked up without asking it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from plughost.stores import StoreError

if TYPE_CHECKING:
    from plughost_library_auth.records import Records

FOLLOW_EVERY: Final = 1.0
"""Seconds after which a host looks what others revoked."""


class Revocations:
    """The tokens that were revoked before they expired.

    The first look reads them from the store; after that a thread of its own follows the store, see `follow`. While
    the store is away, what was known stays known.
    """

    def __init__(self, records: Records, revoked: dict[str, int]) -> None:
        """Look nothing up yet.

        Args:
            records: Where they are kept.
            revoked: Those that are known: token to when it expires. All of a host's share this one.
        """
        self._records = records
        self._revoked = revoked
        self._loading = threading.Lock()
        self._read_at = 0.0

    def __contains__(self, token: str) -> bool:
        """Tell whether a token was revoked.

        Raises:
            plughost.stores.StoreError: The store was never read yet, and can't be: nobody knows.
        """
        if not self._read_at:
            with self._loading:
                if not self._read_at:
                    self.refresh()
        return token in self._revoked

    def revoke(self, token: str, expires: int) -> None:
        """Refuse a token from now on, here at once and on the other hosts of the store within a second.

        Raises:
            plughost.stores.StoreError: It can't be kept; nothing has changed.
        """
        self._records.revoke(token, expires)
        self._revoked[token] = expires

    def refresh(self) -> None:
        """Read what was revoked since the last look; raises as `__contains__`."""
        now = time.time()
        self._revoked.update(self._records.revoked(self._read_at))
        self._read_at = now
        for token, expires in tuple(self._revoked.items()):
            if expires < now:
                self._revoked.pop(token, None)

    def follow(self, stopped: threading.Event) -> None:
        """Refresh every second until told to stop."""
        while not stopped.wait(FOLLOW_EVERY):
            with suppress(StoreError):  # the store logs that it is away, and that it is back
                self.refresh()
