"""The errors of stores, the same for every database, and their translation from a driver's exceptions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import falcon

RETRY_AFTER: Final = 2
"""Seconds after which a client may try again: about as long as it takes to notice that a store is back."""
RETRY_AFTER_FULL: Final = 60
"""The same while a disk is full, which somebody has to mend."""
CUT_OFF: Final = "it took too long, so the host cut the connection off"


class StoreError(Exception):
    """Something is wrong with a store or its use. Unless a subclass says otherwise, it is a defect in the code."""


class MisusedStore(StoreError):  # noqa: N818 - the classes are named for what happened, as Duplicate and Busy are
    """An operation breaks a rule: it is nested, mixes stores, writes while it reads, or returns what it must not."""


class Duplicate(StoreError):  # noqa: N818 - reads better where it is caught
    """A row with this unique value exists already. Nothing of the operation was kept.

    Attributes:
        columns: The columns of the violated constraint, if the database tells them, else empty.
    """

    def __init__(self, message: str, columns: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.columns = columns


class Busy(StoreError):  # noqa: N818 - reads better where it is caught
    """Others held what the operation needs for too long, even after retries. Nothing of the operation was kept."""


class Unavailable(StoreError):  # noqa: N818 - reads better where it is caught
    """The store cannot be reached or written at the moment, and nothing of the operation was kept.

    It recovers by itself once the cause is gone.
    """


class ConnectionLost(Unavailable):
    """The database server cannot be reached, or closed the connection."""


class Unreached(ConnectionLost):
    """No connection to the database server could be made, so nothing was sent to it."""


class Refused(Unavailable):
    """The database server is there, but takes no further connection at the moment."""


class ReadOnly(Unavailable):
    """The settings let this host only read the store."""


class Exhausted(Unavailable):
    """A table has no id left for a new row."""


class Full(Unavailable):
    """The store's disk is full, so it is only read until somebody makes room."""


class Damaged(Unavailable):
    """A store's file or table was removed or replaced, or its content can't be read."""


class Overran(Busy):
    """A statement took longer than allowed. It is not retried, since it would take as long again."""


class OutcomeUnknown(StoreError):  # noqa: N818 - reads better where it is caught
    """The operation may have been kept or not: the connection was lost at its commit, and nobody can tell any more."""


class SetupError(StoreError):
    """A store cannot be opened until somebody fixes something. The message says what."""


class MigrationError(SetupError):
    """A store's schema cannot be migrated to what the plugin's code needs. The message says which step and why."""


class Forbidden(SetupError):  # noqa: N818 - reads better where it is caught
    """The database forbids its user a statement, because of a policy or a missing privilege."""


def http_error(error: StoreError) -> falcon.HTTPError:
    """Return the HTTP error for a store's error that no resource caught, without internal details.

    Returns:
        503 with `Retry-After` if trying again later helps; without it if that is in vain or may do harm (CONTRACT 2);
        409 for a duplicate; else 500.
    """
    if isinstance(error, OutcomeUnknown):
        return falcon.HTTPServiceUnavailable(
            title="Outcome Unknown",
            description="The connection to the data store broke before it confirmed. What was asked for may have been "
            "done: look before you ask again.",
        )
    if isinstance(error, ReadOnly):
        return falcon.HTTPServiceUnavailable(title="Read Only", description="Here the data store is only read.")
    if isinstance(error, Exhausted):
        return falcon.HTTPServiceUnavailable(title="No Ids Left", description="No further record can be made here.")
    if isinstance(error, (Busy, Unavailable, SetupError)):
        description = "The data store does not answer at the moment. Try again in a few seconds."
        if is_full := isinstance(error, Full):
            description = "The data store has no room for changes at the moment. Try again in a few minutes."
        return falcon.HTTPServiceUnavailable(
            title="Service Unavailable",
            description=description,
            retry_after=RETRY_AFTER_FULL if is_full else RETRY_AFTER,
        )
    if isinstance(error, Duplicate):
        return falcon.HTTPConflict(title="Conflict", description="A record with the same unique value exists already.")
    return falcon.HTTPInternalServerError(
        title="Internal Server Error", description="Something went wrong on our side."
    )


# SQLite's names and PostgreSQL's codes, or their beginnings:
# https://www.postgresql.org/docs/current/errcodes-appendix.html
LOCKED: Final = ("40P01", "55P03")
"""PostgreSQL's codes of a deadlock and of a lock that could not be acquired."""
_DUPLICATE: Final = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID", "23505")
_READ_ONLY: Final = ("SQLITE_READONLY", "25006")  # the latter also on a standby
_LACKS_PRIVILEGE: Final = "42501"
_ADVICE: Final = {
    _LACKS_PRIVILEGE: "let its owner grant the user of the URL what it lacks",
    "SQLITE_IOERR_SHMSIZE": "there is no room for the index of its log, -shm",
    "3F000": "create the schema of its search_path, or let its owner grant the user of the URL USAGE on it",
}
_SHORTENED: Final = "SQLITE_IOERR_SHORT_READ"
_SYSTEM: Final = ("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM", "53", "57", "58", "XX")
_KINDS: Final = (
    (("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "40001", *LOCKED), Busy),
    (("57014", "25P03", "25P04"), Overran),  # a time limit: of statements, of idling in a transaction, of transactions
    (("08", "57P"), ConnectionLost),
    (("2200H",), Exhausted),
    (("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100"), Full),
    ((_LACKS_PRIVILEGE,), Forbidden),
    (("SQLITE_CORRUPT", "SQLITE_NOTADB", _SHORTENED, "XX001", "XX002"), Damaged),
    (_READ_ONLY + _SYSTEM, Unavailable),
)


def translate(error: BaseException, label: str, *, reads: bool = False) -> StoreError | None:
    """Return the store error for a driver's exception, by the database's code. None for any other exception.

    If the operation only `reads`, a refusal to write is its own fault.
    """
    if isinstance(error, StoreError):
        return error
    if not isinstance(error, sqlite3.Error) and not hasattr(error, "pgcode"):
        return None
    code: str = getattr(error, "pgcode", None) or getattr(error, "sqlite_errorname", None) or ""
    text = one_line(error)
    if code in _ADVICE:  # the further lines quote the host's own statement, which doesn't help whoever follows it
        text = f"{str(error).splitlines()[0]}: {_ADVICE[code]}"
    if code == _SHORTENED:
        text += "; its file or its log, -wal, was shortened while in use, and what that held is lost"
    message = f"{label}: {text}"
    if reads and code in _READ_ONLY:
        return MisusedStore(f"A read of the {label} was about to write: use run. ({text})")
    if code in _DUPLICATE:
        return Duplicate(message, _violated_columns(error))
    kind = next((kind for prefixes, kind in _KINDS if code.startswith(prefixes)), StoreError)
    if not code:
        kind = _kind_without_code(error)
    return kind(message)


@contextmanager
def translated(label: str) -> Iterator[None]:
    """Raise a driver's exceptions in a block as store errors."""
    try:
        yield
    except Exception as error:
        found = translate(error, label)
        if found is None or found is error:
            raise
        raise found from error


def one_line(error: BaseException | str) -> str:
    """Return a message of several lines, such as a database's, as one, without the lines that point with ^."""
    if getattr(getattr(getattr(error, "cursor", None), "connection", None), "was_cut_off", False):
        return CUT_OFF  # to libpq, the server closed it unexpectedly
    return "; ".join(" ".join(line.split()) for line in str(error).splitlines() if line.strip(" ^"))


def _violated_columns(error: Any) -> tuple[str, ...]:
    """Return the columns of a violated constraint."""
    if isinstance(error, sqlite3.Error):  # "UNIQUE constraint failed: products.sku, products.name"
        return tuple(column.rpartition(".")[2] for column in str(error).rpartition(": ")[2].split(", "))
    # "Key (sku, name)=(a, b) already exists.", in any language
    found = re.search(r"\(([^()]*)\)=", error.diag.message_detail or "")
    return tuple(column.strip('"') for column in found[1].split(", ")) if found else ()


def _kind_without_code(error: BaseException) -> type[StoreError]:
    if isinstance(error, sqlite3.Error):
        # Bytes in a text column that the driver can't decode were no text when they were written.
        return Damaged if "decode to UTF-8" in str(error) else StoreError
    # libpq has no code if no server gave one. Other classes of error are psycopg2's own.
    names = {kind.__name__ for kind in type(error).__mro__}
    return ConnectionLost if names & {"OperationalError", "InterfaceError"} else StoreError
