"""Failed logins are counted, so that passwords can't be guessed by trying."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plughost.ratelimits import network_of
from plughost_library_auth.settings import account_key

if TYPE_CHECKING:
    from plughost.ratelimits import Counter

LONGEST_WAIT: Final = 4 * 3600
"""Seconds that an account waits at most, however often it is tried meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLimits:
    """What counts failed logins; each goes on counting while the host's storage of rate limits is away.

    Attributes:
        account: Those of one account from one address.
        address: Those from one address, whatever the account.
        anywhere: Those of one account from all addresses; waits grow.
        known: Those of one account from the addresses that it got in from before, once `anywhere` is used up.
    """

    account: Counter
    address: Counter
    anywhere: Counter
    known: Counter


class LoginThrottle:
    """Counts failed logins per account and address, per address, and per account (CONTRACT 3).

    Only failures count, and a success forgets none. Once an account's failures anywhere are used up, nobody may try it
    but from an address that it got in from before; each further try from elsewhere makes that last longer.
    """

    def __init__(self, limits: LoginLimits, knows: Callable[[str, str], bool]) -> None:
        """Take the counters, and what tells whether an account got in from an address before."""
        self._limits = limits
        self._knows = knows

    def wait(self, email: str, address: str) -> int:
        """Return the whole seconds until this account may be tried again from this address; 0 for now."""
        account, network = _keys(email, address)
        usages = (self._limits.account.look(f"{account} {network}"), self._limits.address.look(network))
        seconds = max(usage.reset if usage.remaining == 0 else 0 for usage in usages)
        if seconds or self._limits.anywhere.look(account).remaining:
            return seconds
        if not self._knows(email, network):
            return self._limits.anywhere.hit(account).reset
        known = self._limits.known.look(account)
        return 0 if known.remaining else known.reset

    def failed(self, email: str, address: str) -> int:
        """Count a failed login.

        Returns:
            0, or the seconds to wait where others used up the limit while this password was being checked: then
            the answer must not tell that it was wrong.
        """
        account, network = _keys(email, address)
        limits = self._limits
        reserved = limits.anywhere.look(account).remaining == 0 and self._knows(email, network)
        usages = (
            limits.account.hit(f"{account} {network}"),
            limits.address.hit(network),
            (limits.known if reserved else limits.anywhere).hit(account),
        )
        return max(usage.reset if usage.exceeded else 0 for usage in usages)


def _keys(email: str, address: str) -> tuple[str, str]:
    """Return the keys of an account, as a hash since it names somebody, and of an address."""
    account = hashlib.sha256(account_key(email).encode("utf-8", "surrogatepass")).hexdigest()
    return account, network_of(address)
