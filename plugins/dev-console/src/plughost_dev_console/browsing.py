"""Read-only access to the tables and rows of stores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import falcon

from plughost.stores import StoreError, browse
from plughost_dev_console.guard import PREFIX
from plughost_dev_console.view_data import run_bounded

if TYPE_CHECKING:
    from plughost import HostControl
    from plughost.http import Request
    from plughost.stores import OpenStore, Rows

Shown = Mapping[str, Any]

PAGE_SIZE: Final = 50
_LAST_PAGE: Final = 10_000_000
_LONGEST_VALUE: Final = 200
_LONGEST_OF_ROW: Final = 100_000  # a browser needs long to lay out more


class Browsing:
    """Reads stores for the pages. Each method returns the values of one template."""

    def __init__(self, control: HostControl) -> None:
        self._control = control

    def stores(self, req: Request) -> Shown:
        """List the stores and their tables."""
        return {"stores": [_store(each) for each in self._control.stores.values()]}

    def table(self, req: Request, store: str, table: str, page: int, **wanted: str) -> Shown:
        """Return a page of a table's rows, or one row with links to related rows."""
        opened = self._control.stores.get(store)
        if opened is None or table not in opened.declared.tables:
            raise falcon.HTTPNotFound(description=f"There is no table {table} in a store {store}.")
        page = min(max(page, 1), _LAST_PAGE)
        wanted = {name: text[:_LONGEST_VALUE] for name, text in wanted.items()}
        shown: dict[str, Any] = {"title": table, "store": opened, "table": table, "page": page, "wanted": wanted}
        read = partial(browse, opened, table, search=wanted["q"], offset=(page - 1) * PAGE_SIZE, limit=PAGE_SIZE)
        where = {wanted["column"]: wanted["value"]} if wanted["column"] else {}
        try:
            found = read(order=wanted["order"], descending=wanted["way"] == "down", where=where)
        except (StoreError, LookupError) as error:
            problem = str(error) if isinstance(error, StoreError) else f"the table has no column {error}"
            return {**shown, "problem": problem, "columns": (), "rows": (), "total": 0, "last": 0, "one": None}
        return {
            **shown,
            "problem": "",
            "columns": found.columns,
            "rows": [[_cell(each) for each in row] for row in found.rows],
            "total": found.total,
            "last": -(-found.total // PAGE_SIZE),
            "one": _row(opened, table, found) if found.total == len(found.rows) == 1 else None,
        }


def _row(store: OpenStore[Any], table: str, found: Rows) -> list[tuple[str, str, int, list[tuple[str, str]]]]:
    """Return a row's columns, each with its value, how much of it is left out, and links to it in other tables."""
    others: dict[str, tuple[str, ...]] = {}
    for other in store.declared.tables:
        problem, looked = run_bounded(partial(browse, store, other, limit=1))
        if other != table and not problem and looked is not None:
            others[other] = looked.columns
    row = []
    for column, value in zip(found.columns, found.rows[0], strict=True):
        text = "NULL" if value is None else _text(value)
        ways = [] if value is None or len(text) > _LONGEST_VALUE else _ways(store.name, column, text, others)
        row.append((column, text[:_LONGEST_OF_ROW], max(0, len(text) - _LONGEST_OF_ROW), ways))
    return row


def _ways(store: str, column: str, text: str, others: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    query = urlencode({"column": column, "value": text})
    return [
        (other, f"{PREFIX}/stores/{quote(store, safe='')}/{quote(other, safe='')}?{query}")
        for other, columns in others.items()
        if column in columns
    ]


def _store(store: OpenStore[Any]) -> Shown:
    config = store.database.config
    if config.url is None:
        place = str(config.path)
    else:
        url = urlsplit(config.url)
        place = f"{url.hostname or 'local'}:{url.port or 5432}{url.path}"
    tables = []
    for table in store.declared.tables:
        problem, found = run_bounded(partial(browse, store, table, limit=1))
        tables.append({"name": table, "total": None if found is None else found.total, "problem": problem})
    return {"store": store, "place": place, "tables": tables}


def _cell(value: object) -> Shown:
    if value is None:
        return {"text": "NULL", "kind": "null", "more": False, "whole": ""}
    text = _text(value)
    kind = "number" if isinstance(value, (int, float)) or type(value).__name__ == "Decimal" else "text"
    more = len(text) > _LONGEST_VALUE
    return {"text": text[:_LONGEST_VALUE], "kind": kind, "more": more, "whole": "" if more else text}


def _text(value: object) -> str:
    return value.hex(" ") if isinstance(value, bytes) else str(value)
