"""Revoked tokens, cached in memory. All hosts that share the store know a revocation within a second."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from plughost.stores import StoreError

if TYPE_CHECKING:
    from plughost_library_auth.records import Records

POLL_INTERVAL: Final = 1.0
"""Seconds between reads of the revocations of other hosts."""


class Revocations:
    """The tokens that were revoked before they expired.

    The first lookup reads them from the store; then a thread polls the store, see `poll`. While the store is away,
    the known revocations remain.
    """

    def __init__(self, records: Records, revoked: dict[str, int]) -> None:
        """Take the stored and the known revocations; nothing is read yet.

        Args:
            records: The store of revocations.
            revoked: The expiry of each known revoked token, shared by all instances of a host.
        """
        self._records = records
        self._revoked = revoked
        self._loading = threading.Lock()
        self._read_at = 0.0

    def __contains__(self, token: str) -> bool:
        """Return whether a token was revoked.

        Raises:
            plughost.stores.StoreError: The store can't be read, and wasn't before, so the answer is unknown.
        """
        if not self._read_at:
            with self._loading:
                if not self._read_at:
                    self.refresh()
        return token in self._revoked

    def revoke(self, token: str, expires: int) -> None:
        """Revoke a token, here at once and on other hosts of the store within a second.

        Raises:
            plughost.stores.StoreError: It can't be stored; nothing has changed.
        """
        self._records.revoke(token, expires)
        self._revoked[token] = expires

    def refresh(self) -> None:
        """Read the revocations since the last refresh, or all if the clock was set back; raises as `__contains__`.

        A clock that was ahead has made this forget tokens that have not expired.
        """
        now = time.time()
        self._revoked.update(self._records.revoked(self._read_at if self._read_at <= now else 0.0))
        self._read_at = now
        for token, expires in tuple(self._revoked.items()):
            if expires < now:
                self._revoked.pop(token, None)

    def poll(self, stop: threading.Event) -> None:
        """Refresh every second until `stop` is set."""
        while not stop.wait(POLL_INTERVAL):
            with suppress(StoreError):  # the store itself logs when it is away and back
                self.refresh()
