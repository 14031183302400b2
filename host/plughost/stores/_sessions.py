"""Sessions: what one operation sees of its store's database, as SQL and plain rows, the same for both engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from plughost.stores._connections import Pool
    from plughost.stores._operation import Waits
    from plughost.stores._sql import Row

T = TypeVar("T")

Fetch = Callable[[Any], T]
"""Takes what is wanted from a driver's cursor, right after its statement."""

_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


class Mode(Enum):
    """What an operation does: it only reads, it is a transaction, or it is one statement that is a transaction."""

    READ = "read"
    WRITE = "write"
    SINGLE = "single"


class Session(ABC):
    """An operation's connection to its store, for as long as the operation runs.

    In SQL, `?` stands for a value, and for nothing else. Values are those of SQL: None, int, float, str, bytes, bool,
    and Decimal and datetime, which SQLite keeps, and returns, as numbers and text.

    Attributes:
        engine_name: `sqlite` or `postgresql`, where SQL must differ.
        writes: Whether it may write.
    """

    __slots__ = ()

    engine_name: Literal["sqlite", "postgresql"]
    writes: bool

    @property
    def untouched(self) -> bool:
        """Whether the operation may be run again if its connection was lost: nothing that it wrote was answered."""
        return True

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run a statement and return its rows as plain tuples."""
        return self.execute(_all, sql, values)

    def row(self, sql: str, *values: object) -> Row | None:
        """Run a statement and return its first row, or None where there is none."""
        return self.execute(_first, sql, values)

    def records(self, kind: Callable[..., T], sql: str, *values: object) -> list[T]:
        """Run a statement and return a record for each row: `kind` called with the row's columns in their order."""
        return list(starmap(kind, self.execute(_all, sql, values)))

    def change(self, sql: str, *values: object) -> int:
        """Run a statement that writes and return how many rows it wrote or removed."""
        return self.execute(_count, sql, values)

    def insert(self, sql: str, *values: object) -> int:
        """Run an INSERT of one row into a table whose key is the column `id`, and return the new row's id."""
        return self._insert(sql, values)

    @abstractmethod
    def _insert(self, sql: str, values: tuple[object, ...]) -> int: ...

    @abstractmethod
    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run a statement, and return what `fetch` takes from the driver's cursor."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what was written, and end."""

    @abstractmethod
    def undo(self) -> None:
        """Undo what was written, and end; never raises."""


def _all(cursor: Any) -> list[Row]:
    return cursor.fetchall() if cursor.description else []


def _first(cursor: Any) -> Row | None:
    row: Row | None = cursor.fetchone()
    return row


def _count(cursor: Any) -> int:
    count: int = cursor.rowcount
    return count


def refuse_unfit(values: tuple[object, ...]) -> None:
    """Refuse values that no column can hold, whatever the engine makes of them.

    Raises:
        ValueError: A string holds U+0000, or an integer has more than 64 bits.
    """
    for value in values:
        if value.__class__ is str:
            if "\0" in value:
                message = "A string literal cannot contain NUL (0x00) characters."
                raise ValueError(message)
        elif value.__class__ is int and not _SMALLEST <= value <= _LARGEST:
            message = f"The integer {value} has more than 64 bits."
            raise ValueError(message)
        elif value.__class__ is Decimal and not value.is_finite():
            message = f"{value} is no number that a column can hold."
            raise ValueError(message)


class Sessions(Protocol):
    """Makes the sessions of one open store, and owns its connections."""

    label: str
    pool: Pool

    @property
    def lock_waits(self) -> Waits:
        """How often and how long operations waited for others to write, as far as that shows here."""
        ...

    def session(self, mode: Mode, deadline: float) -> Session:
        """Return a new session.

        Args:
            mode: What its operation does.
            deadline: Until when it may wait for connections and locks, as `time.monotonic` tells it.
        """
        ...

    def look(self) -> None:
        """See whether the database is there and in order.

        Raises:
            StoreError: It isn't, or the driver's own error.
        """
        ...

    def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        ...

    def retire(self) -> bool:
        """Close all connections to a database that another may take the place of; tell whether all are closed."""
        ...
