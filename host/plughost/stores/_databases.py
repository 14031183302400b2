"""What the store layer needs of a database, SQLite or PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from plughost.stores._errors import Damaged, SetupError, translate
from plughost.stores._sessions import Session

if TYPE_CHECKING:
    from plughost._runtime.claims import Claims
    from plughost.stores._config import StoreConfig
    from plughost.stores._sessions import Fetch, Sessions

TABLE: Final = "plughost_migrations"
"""The table that records the migrations of all stores in a database."""


T = TypeVar("T")


class Administration(Session):
    """A session on a connection of its own in autocommit mode, for migrations, figures and purging.

    Of the database, it raises `StoreError`s alone.
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
        try:
            return super().execute(fetch, sql, values)  # type: ignore[safe-super] # the session of a database comes next
        except Exception as error:
            found = translate(error, f"store {self._store}")
            if found is None:
                raise
            raise found from error

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns; none where there is no table."""

    def may_use(self, table: str, *, writes: bool) -> bool:
        """Return whether the database's user may read a table, and write it and its sequence where it `writes`.

        True without a table.
        """
        return True

    def check_privileges(self, tables: Iterable[str], *, writes: bool) -> None:
        """Raise `Damaged` where the database's user lacks what a host needs to use the store."""
        for table in (TABLE, *tables):
            if not self.may_use(table, writes=writes and table != TABLE):
                raise Damaged(
                    f"The user of the store {self._store} lacks privileges on the table {table}, or on its sequence: "
                    "grant them"
                )

    def schema_number(self) -> int:
        """Return the number of the store's newest applied migration, 0 where there is none."""
        if not self.has_table(TABLE):
            return 0
        newest = f"SELECT coalesce(max(number), 0) FROM {TABLE} WHERE store = ?"  # noqa: S608 - our own table's name  # nosec B608
        return int(self.rows(newest, self._store)[0][0])

    @abstractmethod
    def size(self, tables: Iterable[str]) -> int:
        """Return the bytes that the store takes on disk."""

    @abstractmethod
    def begin(self, *, shared: bool = False) -> None:
        """Begin a transaction that holds the lock of the store's migrations, or the one of what all stores share.

        Closing the connection undoes it.
        """

    @abstractmethod
    def check_deferred(self) -> None:
        """Check the constraints that the database would check at the commit; raise a `StoreError` if one is broken."""

    @abstractmethod
    def keep(self) -> None:
        """Commit what was begun; where this raises a `StoreError`, nothing of it was kept."""


class Database(ABC):
    """One store's database, by the store's name and settings."""

    def __init__(self, store: str, config: StoreConfig) -> None:
        self.store = store
        self.config = config
        self.label: str = f"store {store}"

    @abstractmethod
    def sessions(self, *, for_pony: bool) -> Sessions:
        """Return what makes sessions, once the database is seen to be in order.

        Raises:
            SetupError: The database's driver is missing, or the URL is malformed.
            Damaged: The database is not in order.
        """

    @abstractmethod
    def check(self) -> None:
        """Look through all of the database, where there is one; raise a `StoreError` if it is not in order."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is a database to look into, or what is left of one; looking makes none."""

    @abstractmethod
    def administer(self) -> AbstractContextManager[Administration]:
        """Return a connection for administration, which makes the database where it is missing."""

    @abstractmethod
    def serving(self) -> AbstractContextManager[None]:
        """Return a claim that a host serves the store, shared with other hosts; `Busy` while it is purged.

        Where connections hold it instead, `Sessions.claim` opens one.
        """

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """Return a claim that excludes every host, for purging and restoring; `Busy` while a host serves the store."""

    def refuse_read_only(self) -> None:
        """Raise a `SetupError` where the settings say that this host only reads the store."""
        if self.config.read_only:
            raise SetupError(f"This host only reads the {self.label} (stores.read_only): use one that writes it.")

    def claims(self) -> Claims | None:
        """Return what this host claims of all that share the database; None where no other host can use it."""
        return None

    @abstractmethod
    def trial(self) -> AbstractContextManager[tuple[Administration, Sessions]]:
        """Return where migrations can be tried and nothing of it is kept, and sessions for Pony's mapping."""

    @abstractmethod
    def erase(self, tables: Iterable[str]) -> None:
        """Drop the tables and the record of their migrations; call it inside `alone`."""
