"""Telling what went wrong, whatever the engine: from an exception of Pony or a driver to a class of ours.

Pony wraps the driver's exception up to three times, and differently for a flush, a commit and a query. What counts
is the code that the database gave, so this walks down to it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from pony.orm import core, dbapiprovider

from plughost.stores.errors import Busy, ConnectionLost, Duplicate, SetupError, StoreError, Unavailable

_SQLITE_DUPLICATE: Final = frozenset(
    {"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID"}
)
_SQLITE: Final = (
    (("SQLITE_BUSY", "SQLITE_LOCKED"), Busy),
    (("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM"), Unavailable),
    (("SQLITE_CORRUPT", "SQLITE_NOTADB"), SetupError),
)
_PG_DUPLICATE: Final = "23505"
# https://www.postgresql.org/docs/current/errcodes-appendix.html: serialization failure, deadlock, lock not available,
# query cancelled (by a time-out).
_PG_BUSY: Final = frozenset({"40001", "40P01", "55P03", "57014"})
_PG_LOST: Final = ("08", "57P")
# Out of resources such as disk or memory, and a read-only transaction, as on a standby.
_PG_UNAVAILABLE: Final = ("53", "25006")


def translate(error: BaseException, label: str) -> StoreError | None:
    """Return the store error that an exception stands for, or None where it is none of a store's.

    Args:
        error: What was caught.
        label: The store and its plugin, for the message.
    """
    if isinstance(error, StoreError):
        return error
    chain = list(_chain(error))
    last = chain[-1]
    if isinstance(last, StoreError):
        return last
    if isinstance(last, sqlite3.Error):
        return _of_sqlite(last, label)
    if hasattr(last, "pgcode"):
        return _of_postgresql(last, label)
    return _of_pony(last, label)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was made from, the driver's last."""
    following: Any = error
    while isinstance(following, BaseException):
        yield following
        several = getattr(following, "exceptions", None)
        if isinstance(following, core.TransactionError) and several:
            following = several[0][1]
        else:
            following = getattr(following, "original_exc", None)


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
    return StoreError(message)


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
    if code.startswith(_PG_LOST):
        return ConnectionLost(message)
    return Unavailable(message) if code.startswith(_PG_UNAVAILABLE) else StoreError(message)


def _of_pony(error: BaseException, label: str) -> StoreError | None:
    message = f"{label}: {error}"
    if isinstance(error, (core.CacheIndexError, core.TransactionIntegrityError)):
        return Duplicate(message)
    if isinstance(error, core.IsolationError):
        # Somebody else changed the row since this session read it: the operation may be tried again.
        return Busy(message)
    if isinstance(error, core.ConnectionClosedError):
        return ConnectionLost(message)
    if isinstance(error, (core.OrmError, dbapiprovider.DBException)):
        return StoreError(message)
    return None
