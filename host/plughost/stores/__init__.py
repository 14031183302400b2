"""Stores: what plugins keep, on SQLite or PostgreSQL.

A plugin declares a `Store`; the host migrates and opens it, and hands it out as `context.stores[name]`, an
`OpenStore`. A plugin's store module is the only one that knows SQL:

    STORE = Store(name="notes", migrations=files(__package__) / "migrations", tables=("notes",))

    def _add(session: Session, text: str) -> int:      # an operation: the session first, plain values out
        return session.insert("INSERT INTO notes (text) VALUES (?)", text)

    class Notes:
        def __init__(self, store: OpenStore[Session]) -> None:
            self._store = store

        def add(self, text: str) -> int:
            return self._store.single(_add, text)                   # one statement; Duplicate is caught here

- `store.read(operation, *args)` for reading, `store.run(operation, *args)` for what writes in one transaction,
  `store.single(operation, *args)` for what writes with one statement, `store.batches` for long lists.
- `Store(entities=…)` gives operations Pony's entities in the session's place; only such stores import Pony.
- A read that writes is refused; so is an operation inside another, of whichever store, and one that returns Pony's
  objects or a generator. An operation may be run again from its start: it only touches its session or entities.
- `Duplicate`, `Busy`, `Unavailable`, `OutcomeUnknown` and other `StoreError`s are raised by `run`, `single` and `read`,
  never inside an operation: catch them outside. What is not caught becomes 503 or 500 by `http_error`.
- Exceptions of the operation's own (a Falcon 404, say) pass through, and undo its transaction.
- A value that no column can hold is a `ValueError`: U+0000, a lone surrogate, an integer over 64 bits, be it stored
  or looked for. Decimals are exact to 15 digits on SQLite; more are rounded without a word.
"""

from plughost._api.idempotency import idempotency_store
from plughost._queries import Rows, browse, read_page
from plughost.stores._config import StoreConfig, StoresConfig
from plughost.stores._errors import (
    Busy,
    Duplicate,
    MigrationError,
    MisusedStore,
    OutcomeUnknown,
    SetupError,
    StoreError,
    Unavailable,
    http_error,
)
from plughost.stores._looking import Statistics, place_of, purge, statistics
from plughost.stores._manager import Stores, migrate_stores, open_stores, prepare_stores, try_stores
from plughost.stores._sessions import Session
from plughost.stores._store import OpenStore

__all__ = [
    "Busy",
    "Duplicate",
    "MigrationError",
    "MisusedStore",
    "OpenStore",
    "OutcomeUnknown",
    "Rows",
    "Session",
    "SetupError",
    "Statistics",
    "StoreConfig",
    "StoreError",
    "Stores",
    "StoresConfig",
    "Unavailable",
    "browse",
    "http_error",
    "idempotency_store",
    "migrate_stores",
    "open_stores",
    "place_of",
    "prepare_stores",
    "purge",
    "read_page",
    "statistics",
    "try_stores",
]
