"""The users, and the password check, which takes the same time for every user."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import bcrypt
from pydantic import SecretStr

from plughost.stores import StoreError
from plughost_library_auth.concurrency import FairSemaphore
from plughost_library_auth.settings import User, account_key

if TYPE_CHECKING:
    from plughost_library_auth.records import Records

MAX_PASSWORD_BYTES: Final = 72
"""Bytes of a password that bcrypt uses. A longer password is refused rather than truncated."""

_SECONDS_AT_12_ROUNDS: Final = 0.2  # time of a check at cost 12; each further round doubles it
_MAX_CONCURRENT_CHECKS: Final = 12  # on a machine with many cores
_DEMO_ROUNDS: Final = 4  # cheap: the passwords are printed at start, so they need no protection


class UserStore:
    """The users who can log in: those of the settings, in memory, and those of the store.

    If both have a user, the one of the settings counts.
    """

    def __init__(
        self,
        users: Iterable[User],
        *,
        rounds: int,
        semaphore: FairSemaphore | None = None,
        records: Records | None = None,
    ) -> None:
        """Take the users.

        Args:
            users: The users of the settings.
            rounds: The bcrypt cost of a check when there are no users.
            semaphore: Limits concurrent checks; by default to all cores but one (CONTRACT 3), at most twelve.
            records: The users of the store.
        """
        self._users = {user.key: user for user in users}
        self._rounds = max((user.rounds for user in self._users.values()), default=rounds)
        self._semaphore = semaphore or FairSemaphore(max(1, min(_cores() - 1, _MAX_CONCURRENT_CHECKS)))
        self._records = records

    def verify(self, email: str, password: str) -> User | None:
        """Return the user with this e-mail address and password, or None.

        Every call costs 2 ** (highest cost of any user's hash) rounds of bcrypt, even if the user doesn't exist or
        has a cheaper hash, so the time reveals nothing.

        Raises:
            TooBusy: Too many passwords are being checked.
            plughost.stores.StoreError: The store is away, and no user of the settings matches.
        """
        stored, max_rounds, store_error = self._find_stored(email)
        user = self._users.get(account_key(email), stored)
        secret = password.encode("utf-8", "surrogatepass")
        rounds = max(self._rounds, max_rounds)
        with self._semaphore.acquire(_SECONDS_AT_12_ROUNDS * 2.0 ** (rounds - 12)):
            is_match = _matches(user, secret[:MAX_PASSWORD_BYTES], rounds)
        # bcrypt repeats a password, separated by NUL, so `p` and `p NUL p` have one hash (RFC 7617 forbids NUL).
        if is_match and len(secret) <= MAX_PASSWORD_BYTES and 0 not in secret:
            return user
        if store_error is not None:  # also for users of the settings with a wrong password, so it doesn't reveal them
            raise store_error
        return None

    def _find_stored(self, email: str) -> tuple[User | None, int, StoreError | None]:
        """Read the store even for users of the settings: the time must not reveal them."""
        if self._records is None:
            return None, 0, None
        try:
            return (*self._records.find(email), None)
        except StoreError as error:
            return None, 0, error


def _matches(user: User | None, secret: bytes, max_rounds: int) -> bool:
    if user is None:
        bcrypt.checkpw(secret, _dummy_hash(max_rounds))
        return False
    is_match = bcrypt.checkpw(secret, user.password_hash.get_secret_value().encode())
    # 2^r + (2^r + 2^(r+1) + ... + 2^(R-1)) = 2^R: a cheap hash costs as much as the most expensive one.
    for rounds in range(user.rounds, max_rounds):
        bcrypt.checkpw(secret, _dummy_hash(rounds))
    return is_match


def hash_password(password: str, rounds: int) -> str:
    """Return the bcrypt hash of a password.

    Args:
        password: At most 72 bytes as UTF-8, not empty, without NUL.
        rounds: The cost: 2 to this power rounds.

    Raises:
        ValueError: The password is empty, too long or contains NUL; the message says which.
    """
    secret = password.encode()
    if not secret:
        raise ValueError("the password is empty")
    if len(secret) > MAX_PASSWORD_BYTES:
        raise ValueError(f"the password has {len(secret)} bytes as UTF-8; bcrypt takes {MAX_PASSWORD_BYTES} at most")
    if 0 in secret:
        raise ValueError("the password contains NUL, which bcrypt treats as its end")
    return bcrypt.hashpw(secret, bcrypt.gensalt(rounds)).decode()


def demo_users() -> dict[str, User]:
    """Return the demo users of `--dev` by password (CONTRACT 3)."""
    return {
        role: User(email=f"{role}@example.org", password_hash=SecretStr(hash_password(role, _DEMO_ROUNDS)), role=role)
        for role in ("user", "admin")
    }


def _dummy_hash(rounds: int) -> bytes:
    """Return a valid hash without a known password. A check against it costs as much as a real one."""
    return b"$2b$%02d$" % rounds + b"." * 53


def _cores() -> int:
    """Return the cores that this process can use; in a container or under taskset, not all of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
