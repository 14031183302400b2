"""Browse: look at the rows of any table of an open store, a page at a time, to read and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from plughost.stores._sessions import quote

if TYPE_CHECKING:
    from plughost.stores._sessions import Row
    from plughost.stores._store import OpenStore

_LONGEST: Final = 10


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


def browse(store: OpenStore[Any], table: str, *, search: str = "", offset: int = 0, limit: int = 50) -> Rows:
    """Return a page of a table's rows, over a connection of its own.

    Args:
        store: The store.
        table: One of the tables that its declaration names.
        search: A text that one of a row's values contains, in whatever case of ASCII letters; empty for every row.
        offset: Rows to leave out at the beginning.
        limit: Rows to return at most.

    Raises:
        KeyError: The store has no such table.
        StoreError: The database can't be reached, or took longer than ten seconds on PostgreSQL.
    """
    if table not in store.declared.tables:
        raise KeyError(table)
    with store.engine.administer() as db:
        if store.engine_name == "postgresql":
            db.rows("SELECT set_config('statement_timeout', ?, false)", f"{_LONGEST}s")
        columns = db.columns(table)
        if not columns:
            raise KeyError(table)
        where, values = _condition(columns, search)
        source = f"{quote(table)}{where}"  # nothing but quoted names and placeholders
        total = db.rows(f"SELECT count(*) FROM {source}", *values)[0][0]  # noqa: S608 - see above
        page = f"SELECT * FROM {source} ORDER BY {quote(columns[0])} LIMIT ? OFFSET ?"  # noqa: S608 - see above
        return Rows(columns=columns, rows=tuple(db.rows(page, *values, limit, offset)), total=int(total))


def _condition(columns: tuple[str, ...], search: str) -> tuple[str, tuple[str, ...]]:
    if not search:
        return "", ()
    if "\0" in search or any("\ud800" <= each <= "\udfff" for each in search):  # what no driver takes, and no row has
        return " WHERE 1 = 0", ()
    escaped = search.lower()
    for special in ("\\", "%", "_"):
        escaped = escaped.replace(special, f"\\{special}")
    each = " OR ".join(rf"lower(CAST({quote(column)} AS TEXT)) LIKE ? ESCAPE '\'" for column in columns)
    return f" WHERE {each}", (f"%{escaped}%",) * len(columns)
