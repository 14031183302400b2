"""Stores: what plugins keep, on SQLite or PostgreSQL, through Pony.

A plugin declares a `Store`; the host migrates and opens it, and hands it out as `context.stores[name]`, an
`OpenStore`. A plugin's store module is the only one that knows Pony:

    from pony.orm import Database, Optional, PrimaryKey, Required, select

    def entities(db: Database) -> Database:
        class Note(db.Entity):
            _table_ = "notes"
            id = PrimaryKey(int, size=64, auto=True)
            text = Required(str, 500, autostrip=False)
        return db

    STORE = Store(name="notes", entities=entities, migrations=files(__package__) / "migrations", tables=("notes",))

    def _add(db: Database, text: str) -> int:      # an operation: entities first, plain values out
        note = db.Note(text=text)
        db.flush()
        return note.id

    def _after(db: Database, last: int | None, limit: int) -> list[tuple[int, str]]:
        return list(select((n.id, n.text) for n in db.Note if n.id > (last or 0)).order_by(1).limit(limit))

    class Notes:
        def __init__(self, store: OpenStore[Database]) -> None:
            self._store = store

        def add(self, text: str) -> int:
            return self._store.run(_add, text)                      # one transaction; Duplicate is caught here

        def all(self) -> Iterator[tuple[int, str]]:
            for batch in self._store.batches(_after, key=itemgetter(0)):    # a session for each batch
                yield from batch

- `store.read(operation, *args)` for reading, `store.run(operation, *args)` for anything that writes. A read that
  writes is refused; so is an operation inside another, of whichever store, and one that returns Pony's objects
  (`list(...)` a query, take the values out of an entity).
- An operation may be run again from its start (after `Busy`, and a read after a lost connection): it only touches
  its entities.
- `Duplicate`, `Busy`, `Unavailable` and other `StoreError`s are raised by `run` and `read`, never inside an operation:
  catch them outside. `Duplicate.columns` names the columns. What is not caught becomes 503 or 500 by `http_error`.
- Exceptions of the operation's own (a Falcon 404, say) pass through, and undo its transaction.
- A value that no column can hold is a `ValueError`: U+0000, a lone surrogate, an integer over 64 bits, be it stored
  or looked for. Decimals are exact to 15 digits; more are rounded without a word, so have a rule before the store.
- The migrations make the tables: `migrations/sqlite/0001_<what>.sql`, `migrations/postgresql/0001_<what>.sql`, and
  `BIGSERIAL`/`BIGINT` are theirs to write. An `int` attribute needs `size=64` where it may exceed 32 bits, a string
  `autostrip=False` where it is kept as sent, `Optional(str, nullable=False)` where it may be empty.
- In queries from generators, a ternary gives wrong rows and a chained comparison raises: `lint.faults` finds both.
- `store.engine_name` is `sqlite` or `postgresql`, where SQL must differ.
"""

from plughost.stores.browsing import Rows, browse
from plughost.stores.config import StoreConfig, StoresConfig
from plughost.stores.errors import (
    Busy,
    Duplicate,
    MigrationError,
    MisusedStore,
    SetupError,
    StoreError,
    Unavailable,
    http_error,
)
from plughost.stores.manager import Stores, open_stores, prepare_stores
from plughost.stores.store import OpenStore

__all__ = [
    "Busy",
    "Duplicate",
    "MigrationError",
    "MisusedStore",
    "OpenStore",
    "Rows",
    "SetupError",
    "StoreConfig",
    "StoreError",
    "Stores",
    "StoresConfig",
    "Unavailable",
    "browse",
    "http_error",
    "open_stores",
    "prepare_stores",
]
