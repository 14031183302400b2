"""The store `library-auth`: users, addresses of logins, and revoked tokens. No other module contains SQL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from plughost import Store
from plughost.stores import Duplicate
from plughost_library_auth.settings import Role, User, account_key, is_email_address

if TYPE_CHECKING:
    from plughost.stores import OpenStore, Session

KNOWN_SECONDS: Final = 90 * 86400
"""Seconds that an address stays known after a login of the account."""

_MAX_ADDRESSES: Final = 20  # known addresses of an account; beyond that, the oldest is forgotten
_OVERLAP: Final = 120  # seconds: clocks of hosts can differ by a minute, and a commit can be late by another
_MAX_DELETED: Final = 100  # rows that one logout deletes; to delete a million takes 2 s, in which nobody can write
_RETENTION: Final = 86400  # seconds that a revocation is kept after its token has expired: the clock may be ahead


STORE: Final = Store(
    name="library-auth",
    migrations=files(__package__) / "migrations",
    tables=("library_users", "library_logins", "library_revoked_tokens"),
)


class Records:
    """All data of the plugin. Each change is one transaction, on disk when its method returns.

    Every method raises `plughost.stores.StoreError` if the store can't be used.
    """

    def __init__(self, store: OpenStore[Session]) -> None:
        self._store = store

    def find(self, email: str) -> tuple[User | None, int]:
        """Return the enabled user with this address, and the highest hash cost of all users (0 without users).

        An invalid address takes the same time.
        """
        return self._store.read(_find, account_key(email) if is_email_address(email) else "")

    def users(self) -> list[tuple[User, bool]]:
        """Return all users, sorted by address, each with whether logins are refused."""
        return self._store.read(_users)

    def add(self, user: User) -> bool:
        """Add a user. Return whether the address was free."""
        try:
            self._store.run(_add, user)
        except Duplicate:
            return False
        return True

    def change(self, email: str, **values: Any) -> bool:
        """Change columns of a user. Return whether there is one."""
        return is_email_address(email) and self._store.run(_change, account_key(email), values)

    def last_logins(self) -> Mapping[str, int]:
        """Return the last login of each account in seconds since the epoch, by `account_key`."""
        return dict(self._store.read(_last_logins))

    def record_login(self, email: str, network: str) -> None:
        """Record a login of an account from a network address now."""
        self._store.run(_record_login, account_key(email), network, int(time.time()))

    def is_known(self, email: str, network: str) -> bool:
        """Return whether the account logged in from a network address within `KNOWN_SECONDS`."""
        account = account_key(email) if is_email_address(email) else ""
        return self._store.read(_is_known, account, network, int(time.time()) - KNOWN_SECONDS)

    def revoke(self, token: str, expires: int) -> None:
        """Revoke a token, and delete some revocations of tokens that expired a day ago."""
        self._store.run(_revoke, token, expires, int(time.time()))

    def revoked(self, since: float = 0.0) -> Mapping[str, int]:
        """Return the revoked tokens and when they expire.

        Args:
            since: Only revocations after this, in seconds since the epoch, and those of the two minutes before, since
                clocks differ and a commit takes time.
        """
        return dict(self._store.read(_revoked, int(since) - _OVERLAP, int(time.time())))


def _find(session: Session, account: str) -> tuple[User | None, int]:
    [[max_rounds]] = session.rows("SELECT MAX(rounds) FROM library_users")
    query = "SELECT email, password_hash, role FROM library_users WHERE account = ? AND disabled = 0"
    found = session.row(query, account)
    return _user(*found) if found else None, max_rounds or 0


def _users(session: Session) -> list[tuple[User, bool]]:
    rows = session.rows("SELECT email, password_hash, role, disabled FROM library_users ORDER BY account")
    return [(_user(email, hashed, role), bool(disabled)) for email, hashed, role, disabled in rows]


def _user(email: str, password_hash: str, role: Role) -> User:
    # Not validated again: the validator runs bcrypt, and the row was validated when it was stored.
    return User.model_construct(email=email, password_hash=SecretStr(password_hash), role=role)


def _add(session: Session, user: User) -> None:
    session.change(
        "INSERT INTO library_users (account, email, password_hash, rounds, role, disabled) VALUES (?, ?, ?, ?, ?, 0)",
        user.key,
        user.email,
        user.password_hash.get_secret_value(),
        user.rounds,
        user.role,
    )


def _change(session: Session, account: str, values: Mapping[str, Any]) -> bool:
    columns = ", ".join(f"{name} = ?" for name in values)
    query = f"UPDATE library_users SET {columns} WHERE account = ?"  # noqa: S608 - the names are our own  # nosec B608
    return bool(session.change(query, *values.values(), account))


def _last_logins(session: Session) -> list[tuple[str, int]]:
    return session.rows("SELECT account, MAX(last_login) FROM library_logins GROUP BY account")


def _record_login(session: Session, account: str, network: str, now: int) -> None:
    session.change(
        "INSERT INTO library_logins (account, network, last_login) VALUES (?, ?, ?)"
        " ON CONFLICT (account, network) DO UPDATE SET last_login = excluded.last_login",
        account,
        network,
        now,
    )
    session.change(
        "DELETE FROM library_logins WHERE account = ? AND network NOT IN (SELECT network FROM library_logins"
        " WHERE account = ? ORDER BY last_login DESC, network LIMIT ?)",
        account,
        account,
        _MAX_ADDRESSES,
    )


def _is_known(session: Session, account: str, network: str, since: int) -> bool:
    query = "SELECT last_login FROM library_logins WHERE account = ? AND network = ? AND last_login >= ?"
    return session.row(query, account, network, since) is not None


def _revoke(session: Session, token: str, expires: int, now: int) -> None:
    session.change(
        "DELETE FROM library_revoked_tokens WHERE token IN"
        " (SELECT token FROM library_revoked_tokens WHERE expires < ? ORDER BY expires LIMIT ?)",
        now - _RETENTION,
        _MAX_DELETED,
    )
    session.change(
        "INSERT INTO library_revoked_tokens (token, expires, revoked) VALUES (?, ?, ?) ON CONFLICT (token) DO NOTHING",
        token,
        expires,
        now,
    )


def _revoked(session: Session, since: int, now: int) -> list[tuple[str, int]]:
    query = "SELECT token, expires FROM library_revoked_tokens WHERE revoked >= ? AND expires >= ?"
    return session.rows(query, since, now)
