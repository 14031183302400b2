"""Looking at stores: whether they answer, what is in them and where; and purging them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from plughost._api.declarations import Health
from plughost.stores._errors import Damaged, StoreError
from plughost.stores._sessions import quote

if TYPE_CHECKING:
    from plughost.stores._sessions import Row, Session
    from plughost.stores._store import OpenStore

_LONGEST: Final = 10


def check(store: OpenStore[Any]) -> Health:
    """Return whether an open store answers; takes no longer than connecting may, and is quick during an outage."""
    data: dict[str, Any] = {"database": store.dialect}
    try:
        store.ping()
    except StoreError as error:
        # Of a damaged file the cause is told; other errors may name hosts and users, which are for the log.
        reason = {"reason": str(error)} if isinstance(error, Damaged) else {}
        return Health(up=False, data={**data, "error": type(error).__name__, **reason})
    return Health(up=True, data={**data, "schema": store.schema})


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What there is to know about a store.

    Attributes:
        place: The file, or the URL with its password masked.
        schema: The number of the newest applied migration; 0 where nothing was made yet.
        latest: The number of the newest migration that the installed plugin has.
        rows: Table to the number of its rows.
        size: Bytes on disk.
        trouble: Why there are no figures; None where there are.
    """

    store: str
    plugin: str
    dialect: str
    place: str
    schema: int = 0
    latest: int = 0
    rows: Mapping[str, int]
    size: int = 0
    trouble: str | None = None


def statistics(store: OpenStore[Any]) -> Statistics:
    """Return what there is to know about a store, whether it is open or not; makes and changes nothing."""
    config = store.database.config
    facts: dict[str, Any] = {"rows": {}}
    try:
        facts["latest"] = len(store.migrations)
        if store.database.exists():
            with store.database.administer() as db:
                tables = [table for table in store.declared.tables if db.has_table(table)]
                rows = {table: _count(db, quote(table)) for table in tables}
                facts |= {"schema": db.schema_number(), "rows": rows, "size": db.size(tables)}
    except StoreError as error:
        facts["trouble"] = str(error)
    return Statistics(store=store.name, plugin=store.plugin, dialect=config.dialect, place=config.place, **facts)


def place_of(store: OpenStore[Any]) -> str | None:
    """Return where a store keeps what it holds, passwords masked; None where nothing was made yet.

    Raises:
        Unavailable: Its database cannot be reached.
        SetupError: Its database's driver is missing.
    """
    return store.database.config.place if store.database.exists() else None


def purge(store: OpenStore[Any]) -> None:
    """Drop all that a store holds, and the record of its migrations; there is no way back.

    Raises:
        Busy: A host serves it.
        Unavailable: Its database cannot be reached.
        SetupError: Its database's driver is missing.
    """
    if store.database.exists():
        with store.database.alone():
            store.database.erase(store.declared.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A page of a table.

    Attributes:
        columns: The names of the columns, in the table's order.
        rows: The values, as the database's driver returns them, in the order of the first column.
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
    """Return a page of a table's rows, over a connection of its own.

    Args:
        store: The store.
        table: One of the tables that its declaration names.
        search: A text that one of a row's values contains, in whatever case of ASCII letters; empty for every row.
        where: Columns and the texts that they hold, exactly.
        order: The column to sort by; the first one by default.
        descending: Whether the largest come first.
        offset: Rows to leave out at the beginning.
        limit: Rows to return at most.

    Raises:
        KeyError: The store has no such table, or the table no such column.
        StoreError: The database can't be reached, or took longer than ten seconds on PostgreSQL.
    """
    if table not in store.declared.tables:
        raise KeyError(table)
    with store.database.administer() as db:
        if store.dialect == "postgresql":
            db.rows("SELECT set_config('statement_timeout', ?, false)", f"{_LONGEST}s")
        if not db.has_table(table):
            raise KeyError(table)
        columns = db.execute(_names, f"SELECT * FROM {quote(table)} LIMIT 0", ())  # noqa: S608 - a quoted name  # nosec B608
        unknown = next((each for each in (*where, order) if each and each not in columns), None)
        if unknown is not None:
            raise KeyError(unknown)
        condition, values = _condition(columns, search, where)
        source = f"{quote(table)}{condition}"  # nothing but quoted names and placeholders
        total = _count(db, source, *values)
        way = " DESC" if descending else ""
        page = f"SELECT * FROM {source} ORDER BY {quote(order or columns[0])}{way} LIMIT ? OFFSET ?"  # noqa: S608 - see above  # nosec B608
        return Rows(columns=columns, rows=tuple(db.rows(page, *values, limit, offset)), total=total)


def _names(cursor: Any) -> tuple[str, ...]:
    return tuple(column[0] for column in cursor.description)


def _count(db: Session, source: str, *values: str) -> int:
    return int(db.rows(f"SELECT count(*) FROM {source}", *values)[0][0])  # noqa: S608 - quoted names  # nosec B608


def _condition(columns: tuple[str, ...], search: str, where: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    wanted = (search, *where.values())
    if any("\0" in each or any("\ud800" <= one <= "\udfff" for one in each) for each in wanted):
        return " WHERE 1 = 0", ()  # what no driver takes, and no row has
    conditions = [f"CAST({quote(column)} AS TEXT) = ?" for column in where]
    values = tuple(where.values())
    if search:
        escaped = search.lower()
        for special in ("\\", "%", "_"):
            escaped = escaped.replace(special, f"\\{special}")
        each = " OR ".join(rf"lower(CAST({quote(column)} AS TEXT)) LIKE ? ESCAPE '\'" for column in columns)
        conditions.append(f"({each})")
        values += (f"%{escaped}%",) * len(columns)
    return f" WHERE {' AND '.join(conditions)}" if conditions else "", values
