"""The databases of stores. Both have the same methods, and mypy checks that each has what is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from plughost.stores._config import POSTGRESQL
from plughost.stores._postgresql import PostgreSQL, PostgreSQLSessions
from plughost.stores._postgresql_sessions import PostgreSQLAdminSession
from plughost.stores._sqlite import SQLite, SQLiteAdminSession, SQLiteSessions

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig

Database: TypeAlias = SQLite | PostgreSQL
AdminSession: TypeAlias = SQLiteAdminSession | PostgreSQLAdminSession
Sessions: TypeAlias = SQLiteSessions | PostgreSQLSessions


def database_for(store: str, config: StoreConfig) -> Database:
    """Return the database of a store, without connecting."""
    return PostgreSQL(store, config) if config.dialect == POSTGRESQL else SQLite(store, config)
