"""Looking at stores: whether they answer, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plughost.declarations import Health
from plughost.stores.errors import StoreError
from plughost.stores.migrations import read_migrations, schema_number

if TYPE_CHECKING:
    from plughost.stores.store import OpenStore


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
        return Health(up=False, data={**data, "error": type(error).__name__})
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
        facts["latest"] = len(read_migrations(store.declared, config.engine))
        if store.engine.exists():
            with store.engine.administer() as db:
                tables = [table for table in store.declared.tables if db.has_table(table)]
                facts["schema"] = schema_number(store.name, db)
                facts["rows"] = {table: db.count(table) for table in tables}
                facts["size"] = db.size(tables)
    except StoreError as error:
        facts["trouble"] = str(error)
    return Statistics(**facts)
