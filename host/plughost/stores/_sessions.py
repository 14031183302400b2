"""Sessions: how an operation uses its store, with SQL and plain rows, the same for both databases."""

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
    from plughost.stores._pool import Pool, WaitStatistics

T = TypeVar("T")

Row = tuple[Any, ...]
Fetch = Callable[[Any], T]
"""Takes the result of a statement from a driver's cursor."""

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
    _returning = ""

    def __init__(self, sessions: Any, deadline: float) -> None:
        """Open nothing; the first statement waits for a connection until the deadline, in `time.monotonic`'s time."""
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
        return self.execute(_fetch_count, sql, values)

    def insert(self, sql: str, *values: object) -> int:
        """Run an INSERT of one row into a table whose key is the column `id`, and return the new row's id."""
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
        """Roll back what was written, and end the session; never raises."""
        Session.commit(self)

    def restart(self) -> None:
        """Roll back what was written so far, and go on."""
        raise NotImplementedError


def fetch_all(cursor: Any) -> list[Row]:
    """Return all rows of a driver's cursor; none for a statement that returns no rows."""
    return cursor.fetchall() if cursor.description else []


_fetch_first: Fetch[Row | None] = methodcaller("fetchone")
_fetch_count: Fetch[int] = attrgetter("rowcount")


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


class Sessions(ABC):
    """Makes the sessions of one open store, and owns its connections."""

    label: str
    pool: Pool
    lock_waits: WaitStatistics

    @abstractmethod
    def session(self, mode: Mode, deadline: float) -> Session:
        """Return a new session, which waits for connections and locks until a time of `time.monotonic`."""

    @abstractmethod
    def probe(self, *, writes: bool = False, deadline: float | None = None) -> None:
        """Check that the database is there and in order, and that it takes writes if `writes`.

        It waits for a connection until the deadline, a time of `time.monotonic`; by default as long as an operation.

        Raises:
            StoreError: It is not, if the driver doesn't raise an error of its own.
        """

    def claim(self) -> None:  # noqa: B027 - nothing, where `Database.shared_claim` holds it
        """Hold the claim that a host serves the store, even while it is idle; `Busy` while it is purged."""

    def release_claim(self) -> None:
        """Give up the claim, and close the connections that are not in use."""
        self.pool.disconnect()

    def exhausted_table(self) -> str | None:
        """Return a table that has no id left, if the database reports that as a full disk."""
        return None

    def tablespace_clauses(self, session: Session, tables: Sequence[str]) -> Iterable[str]:
        """Return the SQL clauses that make a table where these tables are, and where new ones are made."""
        return ("",)

    def discard_idle(self) -> None:  # noqa: B027 - nothing, for most
        """Close the idle connections if they may refuse writes."""

    @abstractmethod
    def close(self) -> bool:
        """Close all connections, those in use once they are released; return whether all are closed."""
