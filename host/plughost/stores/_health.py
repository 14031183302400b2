"""Looking at stores: whether they answer, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plughost._api.declarations import Health
from plughost.stores._errors import Damaged, StoreError

if TYPE_CHECKING:
    from plughost.stores._store import OpenStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What there is to know about a store.

    Attributes:
        store: Its name.
        plugin: The plugin that declared it.
        engine: `sqlite` or `postgresql`.
        place: The file, or the URL with its password masked.
        schema: The number of the newest applied migration; 0 where nothing was made yet.
        latest: The number of the newest migration that the installed plugin has.
        rows: Table to the number of its rows.
        size: Bytes on disk.
        trouble: Why there are no figures; None where there are.
    """

    store: str
    plugin: str
    engine: str
    place: str
    schema: int = 0
    latest: int = 0
    rows: Mapping[str, int]
    size: int = 0
    trouble: str | None = None


def check(store: OpenStore[Any]) -> Health:
    """Return whether an open store answers; takes no longer than connecting may, and is quick during an outage.

    Args:
        store: A store that the host serves.
    """
    data: dict[str, Any] = {"engine": store.engine_name}
    try:
        store.ping()
    except StoreError as error:
        # Of a damaged file the cause is told; other errors may name hosts and users, which are for the log.
        reason = {"reason": str(error)} if isinstance(error, Damaged) else {}
        return Health(up=False, data={**data, "error": type(error).__name__, **reason})
    return Health(up=True, data={**data, "schema": store.schema})


def statistics(store: OpenStore[Any]) -> Statistics:
    """Return what there is to know about a store, whether it is open or not; makes and changes nothing.

    Args:
        store: A prepared or open store.
    """
    config = store.engine.config
    facts: dict[str, Any] = {
        "store": store.name,
        "plugin": store.plugin,
        "engine": config.engine,
        "place": config.place,
        "rows": {},
    }
    try:
        facts["latest"] = len(store.migrations)
        if store.engine.exists():
            with store.engine.administer() as db:
                tables = [table for table in store.declared.tables if db.has_table(table)]
                facts["schema"] = db.schema_number()
                facts["rows"] = {table: db.count(table) for table in tables}
                facts["size"] = db.size(tables)
    except StoreError as error:
        facts["trouble"] = str(error)
    return Statistics(**facts)


def look_through(store: OpenStore[Any]) -> str | None:
    """Look through all that a store holds, whether it is open or not, and return what is wrong with it.

    Args:
        store: A prepared or open store.

    Returns:
        None where it is in order, or was not made yet.
    """
    if not store.engine.exists():
        return None
    try:
        store.engine.check()
    except StoreError as error:
        return str(error)
    found = statistics(store)
    missing = sorted(set(store.declared.tables) - set(found.rows))
    if found.trouble is None and found.schema and missing:
        return f"the store {store.name} lacks its tables {', '.join(missing)}"
    return found.trouble
