"""SQL for lists: the page that a client asks for, and a table for the console.

It uses only a store's sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from plughost.stores._sessions import count, quote

if TYPE_CHECKING:
    from plughost.http import Page
    from plughost.stores._sessions import Row, Session
    from plughost.stores._store import OpenStore

T = TypeVar("T")

_STATEMENT_TIMEOUT: Final = 10  # seconds
_ESCAPES: Final = str.maketrans({special: f"\\{special}" for special in "\\%_"})  # of LIKE


def read_page(
    session: Session, kind: Callable[..., T], select: str, page: Page, *values: object
) -> tuple[list[T], int | None]:
    """Return the records of a page, and their number on all pages. Pass it to a store as an operation.

        notes, total = store.read(read_page, Note, "SELECT id, text FROM notes", page)

    Args:
        session: The operation's session.
        kind: Called with the columns of each row, as by `Session.records`.
        select: The SELECT of the list. Its columns have the names of the page's fields.
        page: The requested page.
        *values: One for each `?` of the SELECT.

    Returns:
        The records, and their number on all pages: None with a cursor.
    """
    total = None if page.paging.cursor else 0
    if page.is_empty:
        return [], total
    conditions, bound = [], [*values]
    listed = f"FROM ({select}) AS listed"
    try:
        for name, value in page.filters.items():
            same = _equal_values(value)
            conditions.append(f"{name} IN ({', '.join('?' * len(same))})")
            bound += same
        if total is not None:
            total = count(session, listed + _where(conditions), bound)
            if page.offset >= total:
                return [], total
        elif page.after is not None:
            condition, after_values = _following(page.order, page.after)
            conditions.append(condition)
            bound += after_values
        order = ", ".join(f"{name} DESC" if descending else name for name, descending in page.order)
        sql = f"SELECT * {listed}{_where(conditions)} ORDER BY {order} LIMIT ? OFFSET ?"
        rows = session.rows(sql, *bound, page.limit, page.offset)
    except (ValueError, OverflowError):  # a value that no column can hold matches no row
        return [], total
    return [kind(*row) for row in rows], total


def _equal_values(value: Any) -> tuple[Any, ...]:
    """Return the values that equal a filter's: a moment without a zone is one in UTC, as PostgreSQL reads it."""
    if not isinstance(value, datetime):
        return (value,)
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return moment, moment.replace(tzinfo=None)  # SQLite has texts of both


def _following(order: tuple[tuple[str, bool], ...], after: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Return the condition for items after a given one, and its values: the first field that differs decides."""
    terms: list[str] = []
    values: list[Any] = []
    for position, (name, descending) in enumerate(order):
        equal = [f"{each} = ?" for each, _ in order[:position]]
        terms.append(" AND ".join([*equal, f"{name} {'<' if descending else '>'} ?"]))
        values += after[: position + 1]
    return f"({' OR '.join(f'({term})' for term in terms)})", values


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A page of a table.

    Attributes:
        columns: The names of the columns, in the table's order.
        rows: The values, as the database's driver returns them, in the requested order.
        total: How many rows match, on all pages.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    total: int


def browse(
    store: OpenStore[Any],
    table: str,
    *,
    search: str = "",
    where: Mapping[str, str] = MappingProxyType({}),
    order: str = "",
    descending: bool = False,
    offset: int = 0,
    limit: int = 50,
) -> Rows:
    """Return a page of a table's rows, over its own connection.

    Args:
        store: The store.
        table: One of the tables that its declaration names.
        search: A text that a value of the row must contain, ignoring the case of ASCII letters. Empty for every row.
        where: Column to the exact text that it must hold.
        order: The column to sort by; the first one by default.
        descending: Whether the largest come first.
        offset: The number of rows to skip.
        limit: The maximum number of rows.

    Raises:
        KeyError: The store has no such table, or the table no such column.
        StoreError: The database can't be reached, or took longer than ten seconds on PostgreSQL.
    """
    if table not in store.declared.tables:
        raise KeyError(table)
    with store.database.administer() as db:
        if store.dialect == "postgresql":
            db.rows("SELECT set_config('statement_timeout', ?, false)", f"{_STATEMENT_TIMEOUT}s")
        if not db.has_table(table):
            raise KeyError(table)
        source = f"FROM {quote(table)}"  # from here on nothing but quoted names and placeholders
        columns = db.execute(
            lambda cursor: tuple(name for name, *_ in cursor.description), f"SELECT * {source} LIMIT 0", ()
        )
        unknown = next((each for each in (*where, order) if each and each not in columns), None)
        if unknown is not None:
            raise KeyError(unknown)
        conditions = [f"CAST({quote(column)} AS TEXT) = ?" for column in where]
        values = list(where.values())
        if search:
            any_column = " OR ".join(rf"lower(CAST({quote(column)} AS TEXT)) LIKE ? ESCAPE '\'" for column in columns)
            conditions.append(f"({any_column})")
            values += [f"%{search.lower().translate(_ESCAPES)}%"] * len(columns)
        source += _where(conditions)
        direction = " DESC" if descending else ""
        page = f"SELECT * {source} ORDER BY {quote(order or columns[0])}{direction} LIMIT ? OFFSET ?"
        try:
            total = count(db, source, values)
            rows = tuple(db.rows(page, *values, limit, offset))
        except ValueError:  # a value that no column can hold matches no row
            total, rows = 0, ()
        return Rows(columns=columns, rows=rows, total=total)


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
