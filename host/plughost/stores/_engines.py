"""What the store layer needs of a database engine, beyond what Pony does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig
    from plughost.stores._sessions import Sessions
    from plughost.stores._sql import Row


class Administration(Protocol):
    """A connection of its own, beside Pony, for migrations, figures and purging.

    What it raises is translated already: `Busy`, `Unavailable` or another `StoreError`.
    """

    @property
    def connection(self) -> Any:
        """The driver's connection."""
        ...

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

    def begin(self) -> None:
        """Begin a transaction that holds the lock of the store's migrations; closing the connection undoes it."""
        ...

    def check_deferred(self) -> None:
        """Check the constraints that the database would check at the commit.

        Raises:
            StoreError: One is broken.
        """
        ...

    def commit(self) -> None:
        """Commit what was begun.

        Raises:
            StoreError: Nothing of it was kept.
        """
        ...

    def make_shared(self, sql: str) -> None:
        """Make a table that stores in one database share, unless it is there, in a transaction of its own."""
        ...


class Engine(Protocol):
    """One store's database."""

    @property
    def config(self) -> StoreConfig:
        """The settings of the store."""
        ...

    def sessions(self, *, for_pony: bool) -> Sessions:
        """Return what makes sessions on the database, which is seen to be in order.

        Args:
            for_pony: Whether its connections need the SQL functions of Pony's.

        Raises:
            SetupError: The engine's driver is missing, or the URL is malformed.
            Damaged: The database is not in order.
        """
        ...

    def check(self) -> None:
        """Look through all of the database.

        Raises:
            StoreError: It is not in order, or can't be reached.
        """
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

    def trial(self) -> AbstractContextManager[tuple[Administration, Sessions]]:
        """Return where migrations can be tried and nothing of it is kept, and sessions for Pony's mapping.

        Raises:
            StoreError: As `administer`; or there is no room for a copy.
        """
        ...

    def erase(self, tables: Iterable[str]) -> None:
        """Drop the tables and the record of their migrations; call it inside `alone`."""
        ...
