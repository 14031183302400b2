"""Stores: the persistent data of plugins, on SQLite or PostgreSQL.

A plugin declares a `Store`. The host migrates and opens it, and provides it as `context.stores[name]`, an
`OpenStore`. Only the plugin's store module knows SQL:

    STORE = Store(name="notes", migrations=files(__package__) / "migrations", tables=("notes",))

    def _add(session: Session, text: str) -> int:      # an operation: it takes a session, and returns plain values
        return session.insert("INSERT INTO notes (text) VALUES (?)", text)

    class Notes:
        def __init__(self, store: OpenStore[Session]) -> None:
            self._store = store

        def add(self, text: str) -> int:
            return self._store.single(_add, text)                   # one statement; Duplicate is caught here

- `store.read(operation, *args)` reads, `store.run(operation, *args)` writes in one transaction,
  `store.single(operation, *args)` writes with one statement, and `store.batches` reads long lists.
- `Store(entities=…)` gives operations Pony's entities instead of a session. Only such stores import Pony.
- A read must not write. An operation must not run inside another, of any store, and must not return Pony's objects or
  a generator. It may be run again from its start, so it only uses its session or entities.
- `Duplicate`, `Busy`, `Unavailable`, `OutcomeUnknown` and other `StoreError`s are raised by `run`, `single` and `read`,
  never inside an operation: catch them outside. If not caught, `http_error` answers them, mostly by 503 or 500.
- The operation's own exceptions, such as a Falcon 404, pass through, and roll its transaction back.
- A value that no column can hold raises `ValueError`, even in a WHERE clause: U+0000, a lone surrogate, an integer over
  64 bits. SQLite silently rounds decimals to 15 digits.
"""

from plughost._api.idempotency import idempotency_store
from plughost._queries import Rows, browse, read_page
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
from plughost.stores._manager import Statistics, place_of, purge, statistics
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
    "StoreError",
    "Unavailable",
    "browse",
    "http_error",
    "idempotency_store",
    "place_of",
    "purge",
    "read_page",
    "statistics",
]
