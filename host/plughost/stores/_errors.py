"""The errors of stores: a few classes, the same for every database, and what a driver's exception becomes."""

from __future__ import annotations

import re
import sqlite3
from typing import Any, Final

import falcon

RETRY_AFTER: Final = 2
"""Seconds that a client is asked to wait: about what a store takes to be noticed as back."""


class StoreError(Exception):
    """Something is wrong with a store, or with how it is used; unless a subclass says more, a defect to mend."""


class MisusedStore(StoreError):  # noqa: N818 - the classes are named for what happened, as Duplicate and Busy are
    """A store operation breaks a rule of the store layer: nested, across stores, writing while reading, leaking."""


class Duplicate(StoreError):  # noqa: N818 - reads better where it is caught
    """A row with this unique value is there already; nothing of the operation was kept.

    Attributes:
        columns: The columns of the violated constraint, as far as the database tells; else empty.
    """

    def __init__(self, message: str, columns: tuple[str, ...] = ()) -> None:
        """Keep the columns."""
        super().__init__(message)
        self.columns = columns


class Busy(StoreError):  # noqa: N818 - reads better where it is caught
    """Others held what the operation needs for too long, also after retries; nothing of the operation was kept."""


class Unavailable(StoreError):  # noqa: N818 - reads better where it is caught
    """The store cannot be reached or written at the moment, and nothing of the operation was kept.

    It recovers by itself once the cause is gone.
    """


class ConnectionLost(Unavailable):
    """The database server cannot be reached, or hung up."""


class Refused(Unavailable):
    """The database server is there, and takes no further connection at the moment."""


class ReadOnly(Unavailable):
    """The host only reads the store, by its settings."""


class Damaged(Unavailable):
    """The file of a store was deleted or replaced, or what is in it can't be read."""


class Overran(Busy):
    """A statement took longer than it may; it is not run again, since it would do so once more."""


class OutcomeUnknown(StoreError):  # noqa: N818 - reads better where it is caught
    """The operation may have been kept or not: the connection was lost at its commit, and nobody can tell any more."""


class SetupError(StoreError):
    """A store cannot be opened until somebody mends something; the message says what."""


class MigrationError(SetupError):
    """A store's schema cannot be brought to what the plugin's code needs; the message says which step and why."""


def http_error(error: StoreError) -> falcon.HTTPError:
    """Return what an HTTP client is told about an error that no resource caught, with nothing internal in it.

    Returns:
        503 with `Retry-After` where trying again later helps, without it where it may do harm (CONTRACT 2) or is in
        vain, 409 for a duplicate, else 500.
    """
    if isinstance(error, OutcomeUnknown):
        return falcon.HTTPServiceUnavailable(
            title="Outcome Unknown",
            description="The connection to the data store broke before it confirmed. What was asked for may have been "
            "done: look before you ask again.",
        )
    if isinstance(error, ReadOnly):
        return falcon.HTTPServiceUnavailable(title="Read Only", description="Here the data store is only read.")
    if isinstance(error, (Busy, Unavailable, SetupError)):
        return falcon.HTTPServiceUnavailable(
            title="Service Unavailable",
            description="The data store does not answer at the moment. Try again in a few seconds.",
            retry_after=RETRY_AFTER,
        )
    if isinstance(error, Duplicate):
        return falcon.HTTPConflict(title="Conflict", description="A record with the same unique value exists already.")
    return falcon.HTTPInternalServerError(
        title="Internal Server Error", description="Something went wrong on our side."
    )


_SQLITE_DUPLICATE: Final = frozenset(
    {"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID"}
)
_SQLITE: Final = (
    (("SQLITE_BUSY", "SQLITE_LOCKED"), Busy),
    (("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM"), Unavailable),
    (("SQLITE_CORRUPT", "SQLITE_NOTADB"), Damaged),
)
_PG_DUPLICATE: Final = "23505"
# https://www.postgresql.org/docs/current/errcodes-appendix.html: serialization failure, deadlock, lock not available.
LOCKED: Final = frozenset({"40P01", "55P03"})
_PG_BUSY: Final = LOCKED | {"40001"}
_PG_OVERRAN: Final = "57014"
_PG_LOST: Final = ("08", "57P")
# Out of resources such as disk or memory, and a read-only transaction, as on a standby.
_PG_READ_ONLY: Final = "25006"
_PG_UNAVAILABLE: Final = ("53", _PG_READ_ONLY)


def translate(error: BaseException, label: str, *, reads: bool = False) -> StoreError | None:
    """Return the store error that an exception stands for, by the database's code; None where it is none of a store's.

    Where its operation only `reads`, a refusal to write is its own fault.
    """
    if isinstance(error, StoreError):
        return error
    code = getattr(error, "pgcode", None) or getattr(error, "sqlite_errorname", None)
    if reads and code in {_PG_READ_ONLY, "SQLITE_READONLY"}:
        return MisusedStore(f"A read of the {label} was about to write: use run. ({str(error).strip()})")
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, label)
    return _of_postgresql(error, label) if hasattr(error, "pgcode") else None


def _of_sqlite(error: sqlite3.Error, label: str) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    message = f"{label}: {error}"
    if name in _SQLITE_DUPLICATE:
        # "UNIQUE constraint failed: products.sku, products.name"
        columns = str(error).rpartition(": ")[2].split(", ")
        return Duplicate(message, tuple(column.rpartition(".")[2] for column in columns))
    for prefixes, kind in _SQLITE:
        if name.startswith(prefixes):
            return kind(message)
    # What the driver can't make a str of was no text when it was written.
    return Damaged(message) if not name and "decode to UTF-8" in message else StoreError(message)


def _of_postgresql(error: Any, label: str) -> StoreError:
    code = error.pgcode
    message = f"{label}: {str(error).strip()}"
    if code is None:
        # libpq knows no code where there was no server to give one. Other classes of error are psycopg2's own.
        names = {kind.__name__ for kind in type(error).__mro__}
        return ConnectionLost(message) if names & {"OperationalError", "InterfaceError"} else StoreError(message)
    if code == _PG_DUPLICATE:
        # "Key (sku, name)=(a, b) already exists.", in whatever language
        found = re.search(r"\(([^()]*)\)=", error.diag.message_detail or "")
        return Duplicate(message, tuple(column.strip('"') for column in found[1].split(", ")) if found else ())
    if code in _PG_BUSY:
        return Busy(message)
    if code == _PG_OVERRAN:
        return Overran(message)
    if code.startswith(_PG_LOST):
        return ConnectionLost(message)
    return Unavailable(message) if code.startswith(_PG_UNAVAILABLE) else StoreError(message)
