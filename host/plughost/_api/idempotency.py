"""The store in which a plugin keeps the responses to requests with an `Idempotency-Key`."""

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
    """Return a store for the responses of a plugin's `idempotent` operations. Return it from `register_stores`."""
    table = table_of(plugin)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for dialect, binary in (("sqlite", "BLOB"), ("postgresql", "BYTEA")):
            name = zipfile.ZipInfo(f"{dialect}/0001_answers.sql")  # without the time, which may be before 1980
            files.writestr(name, _TABLE.format(table=table, bytes=binary))
    return Store(name=store_of(plugin), migrations=zipfile.Path(zipfile.ZipFile(packed)), tables=(table,))


def store_of(plugin: str) -> str:
    """Return the name of the store of a plugin's responses."""
    return f"{plugin}-idempotency"


def table_of(plugin: str) -> str:
    """Return the name of the table of a plugin's responses."""
    return f"{plugin.replace('-', '_').replace('.', '_')}_idempotency"
