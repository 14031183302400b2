"""The store in which a plugin keeps the answers to requests that came with an `Idempotency-Key`."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Final

from plughost._api.declarations import Store

if TYPE_CHECKING:
    from plughost.stores._sessions import Session

_TABLE: Final = """CREATE TABLE {table} (
    id CHAR(64) PRIMARY KEY,
    fingerprint CHAR(64) NOT NULL,
    begun BIGINT NOT NULL,
    status INTEGER,
    headers TEXT,
    body {bytes}
);
CREATE INDEX {table}_begun ON {table} (begun);
"""


def idempotency_store(plugin: str) -> Store[Session]:
    """Return a store for the answers of a plugin's operations that are `idempotent`; `register_stores` returns it."""
    table = table_of(plugin)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for dialect, binary in (("sqlite", "BLOB"), ("postgresql", "BYTEA")):
            files.writestr(f"{dialect}/0001_answers.sql", _TABLE.format(table=table, bytes=binary))
    return Store(name=store_of(plugin), migrations=zipfile.Path(zipfile.ZipFile(packed)), tables=(table,))


def store_of(plugin: str) -> str:
    """Return the name of the store that a plugin's answers are kept in."""
    return f"{plugin}-idempotency"


def table_of(plugin: str) -> str:
    """Return the name of the table of a plugin's answers."""
    return f"{plugin.replace('-', '_').replace('.', '_')}_idempotency"
