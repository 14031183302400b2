"""Insert sample rows into every empty table of a store, with values that fit the column types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from plughost.stores import StoreError

if TYPE_CHECKING:
    from plughost.stores import OpenStore, Session

_ROWS_PER_TABLE: Final = 3
_TABLES: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
    "postgresql": "SELECT table_name FROM information_schema.tables "
    "WHERE table_schema = 'public' AND table_type = 'BASE TABLE'",
}
_COLUMNS: Final = {
    "sqlite": "SELECT name, type, 0 FROM pragma_table_info(?)",  # it omits generated columns
    "postgresql": "SELECT column_name, coalesce(character_maximum_length::text, '') || data_type, "
    "(is_identity = 'YES' OR is_generated = 'ALWAYS' OR coalesce(column_default, '') LIKE 'nextval%')::int "
    "FROM information_schema.columns WHERE table_name = ? AND table_schema = 'public'",
}
_RESTART: Final = (
    "SELECT setval(pg_get_serial_sequence(quote_ident(table_name), column_name), 1, false) "
    "FROM information_schema.columns WHERE table_name = ? AND table_schema = 'public'"
)
_VALUES: Final[tuple[tuple[str, Callable[[int], object]], ...]] = (
    ("bool", lambda number: bool(number % 2)),
    ("interval", lambda number: f"{number} days"),
    ("int", lambda number: number),
    ("timestamp", lambda number: f"2026-01-0{number} 12:00:00"),
    ("datetime", lambda number: f"2026-01-0{number} 12:00:00"),
    ("date", lambda number: f"2026-01-0{number}"),
    ("time", lambda number: f"12:00:0{number}"),
    ("uuid", lambda number: f"00000000-0000-0000-0000-00000000000{number}"),
    ("json", lambda number: f'{{"number": {number}}}'),
    ("blob", lambda number: bytes([number])),
    ("bytea", lambda number: bytes([number])),
    ("num", lambda number: number),
    ("dec", lambda number: number),
    ("real", lambda number: number),
    ("doub", lambda number: number),
    ("float", lambda number: number),
)


def insert_sample_rows(store: OpenStore[Session]) -> dict[str, str]:
    """Insert sample rows into each empty table of a store, referenced tables first.

    Returns:
        The tables that could not be filled, with the database's reason.
    """
    pending = store.read(_empty_tables)
    while pending:
        failed: dict[str, str] = {}
        for table, columns in pending.items():
            try:
                store.run(_insert, table, columns)
            except (StoreError, ValueError) as error:
                failed[table] = str(error)
        if len(failed) == len(pending):
            return failed
        pending = {table: pending[table] for table in failed}
    return {}


def _empty_tables(session: Session) -> dict[str, dict[str, str]]:
    """Return the types of each empty table's columns by name, without columns that the database fills."""
    return {
        table: {name: kind for name, kind, generated in session.rows(_COLUMNS[session.dialect], table) if not generated}
        for (table,) in session.rows(_TABLES[session.dialect])
        if not table.startswith("plughost_") and session.row(f"SELECT 1 FROM {_quoted(table)}") is None  # noqa: S608 - a quoted name  # nosec B608
    }


def _insert(session: Session, table: str, columns: dict[str, str]) -> None:
    names = ", ".join(map(_quoted, columns))
    placeholders = ", ".join("?" for _ in columns)
    row = f"({names}) VALUES ({placeholders})" if columns else "DEFAULT VALUES"
    if session.dialect == "postgresql":
        session.rows(_RESTART, table)  # a refused row has used up an id, to which rows of other tables refer
    for number in range(1, _ROWS_PER_TABLE + 1):
        session.change(f"INSERT INTO {_quoted(table)} {row}", *(_value(kind, number) for kind in columns.values()))


def _value(kind: str, number: int) -> Any:
    for word, make in _VALUES:
        if word in kind.lower():
            return make(number)
    max_length = "".join(letter for letter in kind if letter.isdigit())
    return f"text {number}"[-int(max_length) :] if max_length else f"text {number}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
