"""Sessions: what one operation sees of its store's database, as SQL and plain rows, the same for both databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import IntEnum
from itertools import starmap
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from plughost.stores._errors import MisusedStore

if TYPE_CHECKING:
    from plughost.stores._connections import Pool, Waits

T = TypeVar("T")

Row = tuple[Any, ...]
Fetch = Callable[[Any], T]
"""Takes what is wanted from a driver's cursor, right after its statement."""

_SMALLEST: Final = -(2**63)
LARGEST: Final = 2**63 - 1


class Mode(IntEnum):
    """What is done with a store. Once it succeeds, what failed of it, or of less, is over."""

    READ = 0
    LOOK = 1
    """The health check, which asks whether the database takes writes and writes nothing."""
    WRITE = 2
    SINGLE = 3
    """A write of one statement, which is a transaction."""


class Session(ABC):
    """An operation's connection to its store, for as long as the operation runs.

    In SQL, `?` stands for a value, and for nothing else. Values are those of SQL: None, int, float, str, bytes, bool,
    and Decimal and datetime, which SQLite keeps, and returns, as numbers and text.

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
    _returning = ""

    def __init__(self, sessions: Any, deadline: float) -> None:
        """Take a connection with the first statement, until a time of `time.monotonic`."""
        self.sessions: Any = sessions
        self._deadline = deadline
        self._connection: Any = None
        self.ended = False

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run a statement and return its rows as plain tuples."""
        return self.execute(every_row, sql, values)

    def row(self, sql: str, *values: object) -> Row | None:
        """Run a statement and return its first row, or None where there is none."""
        return self.execute(_first, sql, values)

    def records(self, kind: Callable[..., T], sql: str, *values: object) -> list[T]:
        """Run a statement and return a record for each row: `kind` called with the row's columns in their order."""
        return list(starmap(kind, self.execute(every_row, sql, values)))

    def change(self, sql: str, *values: object) -> int:
        """Run a statement that writes and return how many rows it wrote or removed."""
        return self.execute(_count, sql, values)

    def insert(self, sql: str, *values: object) -> int:
        """Run an INSERT of one row into a table whose key is the column `id`, and return the new row's id."""
        return self.execute(self._new_id, sql + self._returning, values)

    @abstractmethod
    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run a statement, and return what `fetch` takes from the driver's cursor."""

    @property
    def untouched(self) -> bool:
        """Whether the operation may be run again if its connection was lost: nothing that it wrote was answered."""
        return True

    @property
    def connection(self) -> Any:
        """The driver's connection, in a transaction where the session writes."""
        if self._connection is None:
            if self.ended:
                raise MisusedStore(f"{self.sessions.label}: a session was used after its operation was over.")
            self._connection = self._take()
        return self._connection

    def _take(self) -> Any:
        return self.sessions.take(self._deadline)

    def _end(self) -> Any:
        """Return the connection, if it has one, and have none any more."""
        connection, self._connection = self._connection, None
        self.ended = True
        return connection

    def _refuse_second(self) -> None:
        """Refuse a statement after the only one."""
        raise MisusedStore(f"{self.sessions.label}: an operation of `single` is one statement; use `run` for several.")

    def before(self) -> str:
        """Return the SQL that the next statement has to be preceded by, once."""
        return ""

    def commit(self) -> None:
        """Commit what was written, and end."""
        connection = self._end()
        if connection is not None:
            self.sessions.give(connection)

    def undo(self) -> None:
        """Undo what was written, and end; never raises."""
        Session.commit(self)

    def restart(self) -> None:
        """Undo what was written so far, and go on."""
        raise NotImplementedError


def every_row(cursor: Any) -> list[Row]:
    """Return what a driver's cursor has found; nothing, of a statement that finds nothing."""
    return cursor.fetchall() if cursor.description else []


_first: Fetch[Row | None] = methodcaller("fetchone")
_count: Fetch[int] = attrgetter("rowcount")


def refuse_unfit(values: tuple[Any, ...]) -> None:
    """Refuse values that no column can hold, whatever the database makes of them.

    Raises:
        ValueError: A string holds U+0000, an integer has more than 64 bits, or a number is not finite.
    """
    for value in values:
        kind = value.__class__
        if kind is str:
            if "\0" in value:
                raise ValueError("A string literal cannot contain NUL (0x00) characters.")
        elif kind is int:
            if not _SMALLEST <= value <= LARGEST:
                raise ValueError(f"The integer {value} has more than 64 bits.")
        elif kind is Decimal and not value.is_finite():
            raise ValueError(f"{value} is no number that a column can hold.")


class Sessions(ABC):
    """Makes the sessions of one open store, and owns its connections."""

    label: str
    pool: Pool
    lock_waits: Waits

    @abstractmethod
    def session(self, mode: Mode, deadline: float) -> Session:
        """Return a new session, which waits for connections and locks until a time of `time.monotonic`."""

    @abstractmethod
    def look(self, *, writes: bool = False, deadline: float | None = None) -> None:
        """See whether the database is there and in order, and takes writes where it is to.

        A connection is waited for until the deadline, a time of `time.monotonic`; by default as by a new operation.

        Raises:
            StoreError: It is not, unless the driver's own error says so.
        """

    def claim(self) -> None:  # noqa: B027 - nothing, where `Database.serving` holds it
        """Hold the claim that a host serves the store, whether anybody asks or not; `Busy` while it is purged."""

    def let_go(self) -> None:
        """Hold no claim, and no connection that is not in use."""
        self.pool.disconnect()

    def spent(self) -> str | None:
        """Return a table that has no id left, where the database takes that for a full disk."""
        return None

    def places(self, session: Session, tables: Sequence[str]) -> Iterable[str]:
        """Return the clauses of SQL that make a table where these tables are, and where new ones are made."""
        return ("",)

    def refused(self) -> None:  # noqa: B027 - nothing, for most
        """Use no connection again that a write may have been refused on."""

    @abstractmethod
    def close(self) -> bool:
        """Close all connections, those in use when they are given back; tell whether all are closed."""
