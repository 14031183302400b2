"""Limit failed logins, so that passwords can't be guessed by trying."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from plughost.ratelimits import network_of
from plughost_library_auth.settings import account_key

if TYPE_CHECKING:
    from plughost.ratelimits import Counter

MAX_WAIT: Final = 4 * 3600
"""Maximum seconds that an account is locked, however often it is tried meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLimits:
    """Counters of failed logins. They keep counting while the host's rate-limit storage is away.

    Attributes:
        account: Failures of one account from one address.
        address: Failures from one address, for all accounts.
        anywhere: Failures of one account from all addresses; waits grow.
        known: Failures of one account from known addresses, once `anywhere` is used up.
    """

    account: Counter
    address: Counter
    anywhere: Counter
    known: Counter


class LoginThrottle:
    """Limits failed logins per account and address, per address, and per account (CONTRACT 3).

    Only failures count, and a success doesn't reset them. Once an account's limit `anywhere` is used up, only known
    addresses, with an earlier successful login, may try it; each try from elsewhere prolongs that.
    """

    def __init__(self, limits: LoginLimits, is_known: Callable[[str, str], bool]) -> None:
        """Take the counters, and a function that says whether an address is known for an account."""
        self._limits = limits
        self._is_known = is_known

    def seconds_to_wait(self, email: str, address: str) -> int:
        """Return the whole seconds until a login from this address may be tried again; 0 means now."""
        account, network = _counter_keys(email, address)
        usages = (self._limits.account.look(f"{account} {network}"), self._limits.address.look(network))
        seconds = max(usage.reset if usage.remaining == 0 else 0 for usage in usages)
        if seconds or self._limits.anywhere.look(account).remaining:
            return seconds
        if not self._is_known(email, network):
            return self._limits.anywhere.hit(account).reset
        known = self._limits.known.look(account)
        return 0 if known.remaining else known.reset

    def record_failure(self, email: str, address: str) -> int:
        """Count a failed login.

        Returns:
            The seconds to wait if concurrent logins used up the limit during the password check, else 0. If there is
            a wait, the response must not reveal that the password was wrong.
        """
        account, network = _counter_keys(email, address)
        limits = self._limits
        only_known = limits.anywhere.look(account).remaining == 0 and self._is_known(email, network)
        usages = (
            limits.account.hit(f"{account} {network}"),
            limits.address.hit(network),
            (limits.known if only_known else limits.anywhere).hit(account),
        )
        return max(usage.reset if usage.exceeded else 0 for usage in usages)


def _counter_keys(email: str, address: str) -> tuple[str, str]:
    """Return the counter keys of an account and of an address. The account is hashed, because it is personal data."""
    account = hashlib.sha256(account_key(email).encode("utf-8", "surrogatepass")).hexdigest()
    return account, network_of(address)
