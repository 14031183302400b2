"""Sessions: how an operation uses its store, with SQL and plain rows, the same for both databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from enum import IntEnum
from itertools import starmap
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from plughost.stores._errors import MisusedStore, SetupError, translated

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig

T = TypeVar("T")

Row = tuple[Any, ...]
Fetch = Callable[[Any], T]
"""Takes the result of a statement from a driver's cursor."""

TABLE: Final = "plughost_migrations"
"""The table that records the migrations of all stores in a database."""
_MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1


class Mode(IntEnum):
    """How an operation uses a store. Its success ends a failure of the same or a lower mode."""

    READ = 0
    PROBE = 1
    """The health check: it asks whether the database takes writes, and writes nothing."""
    WRITE = 2
    SINGLE = 3
    """A write of one statement, which is a transaction by itself."""


class Session(ABC):
    """An operation's connection to its store, for as long as the operation runs.

    In SQL, `?` stands for a value, and for nothing else. Values are None, int, float, str, bytes, bool, Decimal and
    datetime. SQLite stores Decimal and datetime as text or numbers, and returns them so.

    Attributes:
        dialect: `sqlite` or `postgresql`, where SQL must differ.
        writes: Whether it may write.
        ended: Whether its operation is over.
    """

    __slots__ = ("_connection", "_deadline", "ended", "sessions")

    dialect: Literal["sqlite", "postgresql"]
    writes: bool = True
    ended: bool
    _new_id: Fetch[int]
    _count: Fetch[int] = attrgetter("rowcount")
    _returning = ""

    def __init__(self, sessions: Any, deadline: float) -> None:
        """Open nothing. The first statement waits for a connection until the deadline, in `time.monotonic`'s time."""
        self.sessions: Any = sessions
        self._deadline = deadline
        self._connection: Any = None
        self.ended = False

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run a statement and return its rows as plain tuples."""
        return self.execute(fetch_all, sql, values)

    def row(self, sql: str, *values: object) -> Row | None:
        """Run a statement and return its first row, or None if there is none."""
        return self.execute(_fetch_first, sql, values)

    def records(self, kind: Callable[..., T], sql: str, *values: object) -> list[T]:
        """Run a statement and return `kind(*row)` for each row."""
        return list(starmap(kind, self.execute(fetch_all, sql, values)))

    def change(self, sql: str, *values: object) -> int:
        """Run a statement that writes, and return the number of rows that it wrote or removed."""
        return self.execute(self._count, sql, values)

    def insert(self, sql: str, *values: object) -> int:
        """Run an INSERT of one row into a table whose key is the column `id`, and return the new row's id.

        If it may update a row instead, by `ON CONFLICT`, use `row` and `RETURNING id`: SQLite knows only new ids.
        """
        return self.execute(self._new_id, sql + self._returning, values)

    @abstractmethod
    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run a statement, and return what `fetch` takes from the driver's cursor."""

    @property
    def untouched(self) -> bool:
        """Whether the operation may run again after its connection was lost: no write of it was confirmed."""
        return True

    @property
    def connection(self) -> Any:
        """The driver's connection, in a transaction if the session writes."""
        if self._connection is None:
            if self.ended:
                raise MisusedStore(f"{self.sessions.label}: a session was used after its operation was over.")
            self._connection = self._acquire()
        return self._connection

    def _acquire(self) -> Any:
        return self.sessions.acquire(self._deadline)

    def _detach(self) -> Any:
        """End the session, and return its connection, if it has one."""
        connection, self._connection = self._connection, None
        self.ended = True
        return connection

    def _refuse_second(self) -> None:
        raise MisusedStore(f"{self.sessions.label}: an operation of `single` is one statement; use `run` for several.")

    def before(self) -> str:
        """Return SQL that must precede the next statement, once."""
        return ""

    def commit(self) -> None:
        """Commit what was written, and end the session."""
        connection = self._detach()
        if connection is not None:
            self.sessions.release(connection)

    def undo(self) -> None:
        """Roll back what was written, and end the session. Never raises."""
        Session.commit(self)

    def restart(self) -> None:
        """Roll back what was written so far, and go on."""
        self.undo()
        self.ended = False


def fetch_all(cursor: Any) -> list[Row]:
    """Return all rows of a driver's cursor: no rows if the statement returns none."""
    return cursor.fetchall() if cursor.description else []


_fetch_first: Fetch[Row | None] = methodcaller("fetchone")


def quote(name: str) -> str:
    """Return the name of a table or column, quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def count(session: Session, source: str, values: Sequence[object] = ()) -> int:
    """Return the number of rows of a source: a FROM clause, with or without a WHERE clause."""
    return int(session.rows(f"SELECT count(*) {source}", *values)[0][0])


def check_values(values: tuple[Any, ...]) -> None:
    """Refuse values that no column can hold, even if the database would accept them.

    Raises:
        ValueError: A string holds U+0000, an integer has more than 64 bits, or a number is not finite.
    """
    for value in values:
        kind = value.__class__
        if kind is str:
            if "\0" in value:
                raise ValueError("A string literal cannot contain NUL (0x00) characters.")
        elif kind is int:
            if not _MIN_INTEGER <= value <= MAX_INTEGER:
                raise ValueError(f"The integer {value} has more than 64 bits.")
        elif kind is Decimal and not value.is_finite():
            raise ValueError(f"{value} is no number that a column can hold.")


class BaseAdminSession(Session):
    """A session on its own connection in autocommit mode, for migrations, statistics and purging.

    Errors of the database are raised as `StoreError`.
    """

    def __init__(self, connection: Any, store: str) -> None:
        super().__init__(None, 0.0)
        self._connection = connection
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run one statement as the database's own session does."""
        with translated(f"store {self._store}"):
            return super().execute(fetch, sql, values)  # type: ignore[safe-super] # the session of a database comes next

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's columns: an empty set without the table."""

    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name."""
        return bool(self.columns(name))

    def schema_number(self) -> int:
        """Return the number of the store's newest applied migration. 0 if there is none."""
        if not self.has_table(TABLE):
            return 0
        newest = f"SELECT coalesce(max(number), 0) FROM {TABLE} WHERE store = ?"  # noqa: S608 - our own table's name  # nosec B608
        return int(self.rows(newest, self._store)[0][0])


class BaseDatabase:
    """The database of one store."""

    def __init__(self, store: str, config: StoreConfig) -> None:
        self.store = store
        self.config = config
        self.label: str = f"store {store}"

    def turn(self) -> AbstractContextManager[object]:
        """Exclude other hosts that migrate, purge or restore. A file has one host."""
        return nullcontext()

    def refuse_read_only(self) -> None:
        """Raise a `SetupError` if the settings let this host only read the store."""
        if self.config.read_only:
            raise SetupError(f"This host only reads the {self.label} (stores.read_only): use one that writes it.")
