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


@dataclass(frozen=True, kw_only=True)
class LoginThrottle:
    """Limits failed logins per account and address, per address, and per account (CONTRACT 3).

    Only failures count, and a success doesn't reset them. Once an account's limit `anywhere` is used up, only known
    addresses, with an earlier successful login, may try it; each try from elsewhere prolongs that.

    Attributes:
        account: Counts failures of one account from one address.
        address: Counts failures from one address, for all accounts.
        anywhere: Counts failures of one account from all addresses; waits grow.
        known: Counts failures of one account from known addresses, once `anywhere` is used up.
        is_known: Returns whether an address is known for an account.
    """

    account: Counter
    address: Counter
    anywhere: Counter
    known: Counter
    is_known: Callable[[str, str], bool]

    def seconds_to_wait(self, email: str, address: str) -> int:
        """Return the whole seconds until a login from this address may be tried again; 0 means now."""
        account, network = _counter_keys(email, address)
        usages = (self.account.look(f"{account} {network}"), self.address.look(network))
        seconds = max(usage.reset if usage.remaining == 0 else 0 for usage in usages)
        if seconds or self.anywhere.look(account).remaining:
            return seconds
        if not self.is_known(email, network):
            return self.anywhere.hit(account).reset
        known = self.known.look(account)
        return 0 if known.remaining else known.reset

    def record_failure(self, email: str, address: str) -> int:
        """Count a failed login.

        Returns:
            The seconds to wait if concurrent logins used up the limit during the password check, else 0. If there is
            a wait, the response must not reveal that the password was wrong.
        """
        account, network = _counter_keys(email, address)
        only_known = self.anywhere.look(account).remaining == 0 and self.is_known(email, network)
        usages = (
            self.account.hit(f"{account} {network}"),
            self.address.hit(network),
            (self.known if only_known else self.anywhere).hit(account),
        )
        return max(usage.reset if usage.exceeded else 0 for usage in usages)


def _counter_keys(email: str, address: str) -> tuple[str, str]:
    """Return the counter keys of an account and of an address. The account is hashed, because it is personal data."""
    account = hashlib.sha256(account_key(email).encode("utf-8", "surrogatepass")).hexdigest()
    return account, network_of(address)
