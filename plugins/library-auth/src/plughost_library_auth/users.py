"""The users in memory, and the check of a password, which takes the same work whoever asks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import bcrypt
from pydantic import SecretStr

from plughost.stores import StoreError
from plughost_library_auth.settings import User, account_key
from plughost_library_auth.turns import Turns

if TYPE_CHECKING:
    from plughost_library_auth.records import Records

LONGEST_PASSWORD: Final = 72
"""Bytes of a password that bcrypt looks at; a longer one is refused rather than cut."""

_SECONDS_OF_TWELVE: Final = 0.2  # what a check of twelve rounds takes; each further round doubles it
_MOST_AT_ONCE: Final = 12  # checks, on a machine of many cores
_DEMO_ROUNDS: Final = 4  # the passwords are printed on start: nothing to protect, and a start stays quick


class UserStore:
    """The users that may log in: those of the settings, held in memory, and those of the store.

    Where both have one, that of the settings counts.
    """

    def __init__(
        self,
        users: Iterable[User],
        *,
        rounds: int,
        turns: Turns | None = None,
        records: Records | None = None,
    ) -> None:
        """Keep the users.

        Args:
            users: Those of the settings.
            rounds: The bcrypt cost that a check has where there are no users at all.
            turns: How many checks run at once; by default, all cores but one (CONTRACT 3), at most twelve.
            records: The users of the store.
        """
        self._users = {user.key: user for user in users}
        self._rounds = max((user.rounds for user in self._users.values()), default=rounds)
        self._turns = turns or Turns(max(1, min(_cores() - 1, _MOST_AT_ONCE)))
        self._records = records

    def __len__(self) -> int:
        return len(self._users)

    def verify(self, email: str, password: str) -> User | None:
        """Return the user with this e-mail address and password, or None.

        Every call costs 2 ** (highest cost of any user's hash) rounds of bcrypt, whether the user exists or not,
        and whatever the cost of that user's own hash: the time tells nothing.

        Raises:
            TooBusy: So many are being checked that this one isn't.
            plughost.stores.StoreError: The store is away, and no user of the settings has this address and password.
        """
        stored, dearest, trouble = self._stored(email)
        user = self._users.get(account_key(email), stored)
        secret = password.encode("utf-8", "surrogatepass")
        rounds = max(self._rounds, dearest)
        with self._turns.turn(_SECONDS_OF_TWELVE * 2.0 ** (rounds - 12)):
            right = _matches(user, secret[:LONGEST_PASSWORD], rounds)
        # Bcrypt repeats a password with NUL in between, so `p` and `p NUL p` have one hash (RFC 7617 has no NUL).
        if right and len(secret) <= LONGEST_PASSWORD and 0 not in secret:
            return user
        if trouble is not None:  # for every other user alike, so that it doesn't tell whom the settings have
            raise trouble
        return None

    def _stored(self, email: str) -> tuple[User | None, int, StoreError | None]:
        """Look into the store, whoever asks: the time must not tell whether the settings have this user."""
        if self._records is None:
            return None, 0, None
        try:
            return (*self._records.find(email), None)
        except StoreError as error:
            return None, 0, error


def _matches(user: User | None, secret: bytes, dearest: int) -> bool:
    if user is None:
        bcrypt.checkpw(secret, _dummy(dearest))
        return False
    right = bcrypt.checkpw(secret, user.password_hash.get_secret_value().encode())
    # 2^r + (2^r + 2^(r+1) + ... + 2^(R-1)) = 2^R: a cheap hash is made as dear as the dearest.
    for rounds in range(user.rounds, dearest):
        bcrypt.checkpw(secret, _dummy(rounds))
    return right


def hash_password(password: str, rounds: int) -> str:
    """Return the bcrypt hash of a password.

    Args:
        password: At most 72 bytes as UTF-8, not empty, without NUL.
        rounds: The cost: 2 to this power rounds.

    Raises:
        ValueError: The password is empty or too long, or has NUL; the message says which.
    """
    secret = password.encode()
    if not secret:
        msg = "the password is empty"
        raise ValueError(msg)
    if len(secret) > LONGEST_PASSWORD:
        msg = f"the password has {len(secret)} bytes as UTF-8; bcrypt takes {LONGEST_PASSWORD} at most"
        raise ValueError(msg)
    if 0 in secret:
        msg = "the password contains NUL, and no login may: bcrypt takes it for the end"
        raise ValueError(msg)
    return bcrypt.hashpw(secret, bcrypt.gensalt(rounds)).decode()


def demo_users() -> dict[str, User]:
    """Return the users of `--dev` by their passwords (CONTRACT 3)."""
    return {
        role: User(email=f"{role}@example.org", password_hash=SecretStr(hash_password(role, _DEMO_ROUNDS)), role=role)
        for role in ("user", "admin")
    }


def _dummy(rounds: int) -> bytes:
    """Return a well-formed hash that no password is known for; checking against it costs what a real one does."""
    return b"$2b$%02d$" % rounds + b"." * 53


def _cores() -> int:
    """Return the cores that this process may use: fewer than the machine's in a container or under taskset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
