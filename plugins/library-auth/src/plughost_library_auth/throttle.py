"""Failed logins are counted, so that passwords can't be guessed by trying."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from plughost.ratelimits import network_of
from plughost_library_auth.settings import account_key

if TYPE_CHECKING:
    from plughost.ratelimits import Counter, Usage


class LoginThrottle:
    """Counts failed logins per account and address, and per address (CONTRACT 3).

    Only failures count, and a success forgets none.
    """

    def __init__(self, *, account: Counter, address: Counter) -> None:
        """Take the counters, which go on counting while the host's storage of rate limits is away.

        Args:
            account: Of failures of one account from one address.
            address: Of failures from one address, whatever the account.
        """
        self._account = account
        self._address = address

    def wait(self, email: str, address: str) -> int:
        """Return the whole seconds until this account may be tried again from this address; 0 for now."""
        account, network = _keys(email, address)
        usages = (self._account.look(account), self._address.look(network))
        return max(usage.reset if usage.remaining == 0 else 0 for usage in usages)

    def failed(self, email: str, address: str) -> int:
        """Count a failed login.

        Returns:
            0, or the seconds to wait where others used up the limit while this password was being checked: then
            the answer must not tell that it was wrong.
        """
        account, network = _keys(email, address)
        usages: tuple[Usage, ...] = (self._account.hit(account), self._address.hit(network))
        return max(usage.reset if usage.exceeded else 0 for usage in usages)


def _keys(email: str, address: str) -> tuple[str, str]:
    """Return the keys of an account at an address, and of the address; the first as a hash, as it names somebody."""
    network = network_of(address)
    account = hashlib.sha256(account_key(email).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{account} {network}", network
