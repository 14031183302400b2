"""What the store layer needs of a database engine, beyond what Pony does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from plughost.stores.config import POSTGRESQL, StoreConfig

if TYPE_CHECKING:
    from plughost.stores.connections import Connections

Row = tuple[Any, ...]


class Administration(Protocol):
    """A connection of its own, beside Pony, for migrations, figures and purging.

    What it raises is translated already: `Busy`, `Unavailable` or another `StoreError`.
    """

    def script(self, sql: str) -> None:
        """Run statements that end in semicolons, without committing."""
        ...

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run one statement, with `?` for each value, and return its rows."""
        ...

    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name."""
        ...

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        ...

    def size(self, tables: Iterable[str]) -> int:
        """Return the bytes that the store takes on disk."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Return a transaction that holds the lock of migrations; it is undone when its block raises."""
        ...


class Engine(Protocol):
    """One store's database."""

    @property
    def config(self) -> StoreConfig:
        """The settings of the store."""
        ...

    def connections(self) -> Connections:
        """Return a new pool of Pony connections, with none open yet.

        Raises:
            SetupError: The engine's driver is missing, or the URL is malformed.
        """
        ...

    def provider(self) -> Any:
        """Return the Pony provider class that goes with the connections."""
        ...

    def exists(self) -> bool:
        """Return whether there is a database to look into; looking makes none."""
        ...

    def administer(self) -> AbstractContextManager[Administration]:
        """Return a connection for administration, which makes the database where it is missing.

        Raises:
            SetupError: As `connections`.
            Unavailable: The database cannot be reached.
        """
        ...

    def serving(self) -> AbstractContextManager[None]:
        """Return a claim that a host serves the store, shared with other hosts.

        Raises:
            Busy: The store is being purged or restored.
        """
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Return a claim on the store that excludes every host, for purging and restoring.

        Raises:
            Busy: A host serves the store.
        """
        ...

    def erase(self, tables: Iterable[str]) -> None:
        """Drop the tables and the record of their migrations; call it inside `alone`."""
        ...


def engine_for(store: str, config: StoreConfig) -> Engine:
    """Return the engine of a store; nothing is opened or connected yet.

    Args:
        store: The store's name.
        config: The store's settings.
    """
    # Each engine is imported only where it is used, since PostgreSQL's driver is an extra.
    if config.engine == POSTGRESQL:
        from plughost.stores.postgresql import PostgreSQL  # noqa: PLC0415 - see above

        return PostgreSQL(store, config)
    from plughost.stores.sqlite import SQLite  # noqa: PLC0415 - see above

    return SQLite(store, config)


def quote(name: str) -> str:
    """Return the name of a table as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'
