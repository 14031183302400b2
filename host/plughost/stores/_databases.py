"""What each kind of database, SQLite or PostgreSQL, does for its stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from plughost.stores._errors import Damaged, SetupError, translated
from plughost.stores._sessions import Session

if TYPE_CHECKING:
    from plughost._runtime.claims import Claims
    from plughost.stores._config import StoreConfig
    from plughost.stores._sessions import Fetch, Sessions

TABLE: Final = "plughost_migrations"
"""The table that records the migrations of all stores in a database."""


T = TypeVar("T")


class AdminSession(Session):
    """A session on its own connection in autocommit mode, for migrations, statistics and purging.

    Errors of the database are raised as `StoreError`.
    """

    def __init__(self, connection: Any, store: str) -> None:
        super().__init__(None, 0.0)
        self._connection = connection
        self._store = store

    @abstractmethod
    def script(self, sql: str) -> None:
        """Run statements that end in semicolons, without committing."""

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run one statement as the database's own session does."""
        with translated(f"store {self._store}"):
            return super().execute(fetch, sql, values)  # type: ignore[safe-super] # the session of a database comes next

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; none without the table."""

    def has_privileges(self, table: str, *, writes: bool) -> bool:
        """Return whether the database's user may read a table, and if it `writes`, write to it; True without one."""
        return True

    def check_privileges(self, tables: Iterable[str], *, writes: bool) -> None:
        """Raise `Damaged` if the database's user lacks a privilege that the store needs."""
        for table in (TABLE, *tables):
            if not self.has_privileges(table, writes=writes and table != TABLE):
                raise Damaged(
                    f"The user of the store {self._store} lacks privileges on the table {table}, or on its sequence: "
                    "grant them"
                )

    def schema_number(self) -> int:
        """Return the number of the store's newest applied migration; 0 if there is none."""
        if not self.has_table(TABLE):
            return 0
        newest = f"SELECT coalesce(max(number), 0) FROM {TABLE} WHERE store = ?"  # noqa: S608 - our own table's name  # nosec B608
        return int(self.rows(newest, self._store)[0][0])

    @abstractmethod
    def size(self, tables: Iterable[str]) -> int:
        """Return how many bytes the store takes on disk."""

    @abstractmethod
    def begin_transaction(self, *, shared: bool = False) -> None:
        """Begin a transaction that holds the lock of the store's migrations, or the `shared` one of all stores.

        Closing the connection rolls it back.
        """

    @abstractmethod
    def check_deferred(self) -> None:
        """Check the constraints that are deferred to the commit; raise a `StoreError` if one is broken."""

    @abstractmethod
    def commit_transaction(self) -> None:
        """Commit the transaction; if this raises a `StoreError`, nothing of it was kept."""


class Database(ABC):
    """The database of one store."""

    def __init__(self, store: str, config: StoreConfig) -> None:
        self.store = store
        self.config = config
        self.label: str = f"store {store}"

    @abstractmethod
    def sessions(self, *, for_pony: bool) -> Sessions:
        """Return what makes sessions, after checking the database.

        Raises:
            SetupError: The database's driver is missing, or the URL is malformed.
            Damaged: The database did not pass the check.
        """

    @abstractmethod
    def check(self) -> None:
        """Check the whole database, if it exists; raise a `StoreError` if it is not in order."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the database, or a remnant of it, exists; never make one."""

    @abstractmethod
    def administer(self) -> AbstractContextManager[AdminSession]:
        """Open a session for administration, and make the database if it is missing."""

    @abstractmethod
    def shared_claim(self) -> AbstractContextManager[None]:
        """Claim that a host serves the store, together with other hosts; `Busy` while it is purged.

        On PostgreSQL, connections hold the claim instead: see `Sessions.claim`.
        """

    @abstractmethod
    def exclusive_claim(self) -> AbstractContextManager[None]:
        """Exclude every host, for purging and restoring; `Busy` while a host serves the store."""

    def refuse_read_only(self) -> None:
        """Raise a `SetupError` if the settings let this host only read the store."""
        if self.config.read_only:
            raise SetupError(f"This host only reads the {self.label} (stores.read_only): use one that writes it.")

    def claims(self) -> Claims | None:
        """Return the claims of this host among those that share the database; None if no other host can use it."""
        return None

    @abstractmethod
    def trial(self) -> AbstractContextManager[AdminSession]:
        """Open a session in which migrations can be tried without a trace."""

    @abstractmethod
    def erase(self, tables: Iterable[str]) -> None:
        """Drop the tables and the record of their migrations; call it inside `exclusive_claim`."""
