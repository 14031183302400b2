"""Telling what went wrong, whatever the engine: from an exception of a driver to a class of ours.

What counts is the code that the database gave, never the words.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any, Final

from plughost.stores._errors import (
    Busy,
    ConnectionLost,
    Damaged,
    Duplicate,
    MisusedStore,
    Overran,
    StoreError,
    Unavailable,
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
_PG_BUSY: Final = frozenset({"40001", "40P01", "55P03"})
_PG_OVERRAN: Final = "57014"
_PG_LOST: Final = ("08", "57P")
# Out of resources such as disk or memory, and a read-only transaction, as on a standby.
_PG_READ_ONLY: Final = "25006"
_PG_UNAVAILABLE: Final = ("53", _PG_READ_ONLY)


def translate(error: BaseException, label: str, *, reads: bool = False) -> StoreError | None:
    """Return the store error that an exception stands for, or None where it is none of a store's.

    Args:
        error: What was caught.
        label: The store and its plugin, for the message.
        reads: Whether the operation may only read: a refusal to write is its own fault then.
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
