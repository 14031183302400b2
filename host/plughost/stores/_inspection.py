"""Inspecting stores: whether they answer, what they hold and where; and purging them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plughost._api.declarations import Health
from plughost.stores._errors import Damaged, StoreError
from plughost.stores._sessions import count, quote

if TYPE_CHECKING:
    from plughost.stores._store import OpenStore


def check(store: OpenStore[Any]) -> Health:
    """Return whether an open store answers, within the time limit for connecting, and at once during an outage."""
    data: dict[str, Any] = {"database": store.dialect}
    try:
        store.ping()
    except StoreError as error:
        # Only the message of damage is shown: others may name hosts and users, which belong in the log.
        reason = {"reason": str(error)} if isinstance(error, Damaged) else {}
        return Health(up=False, data={**data, "error": type(error).__name__, **reason})
    return Health(up=True, data={**data, "schema": store.schema})


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Facts about a store.

    Attributes:
        place: The file, or the URL with its password masked.
        schema: The number of the newest applied migration; 0 if nothing was made yet.
        latest: The number of the newest migration that the installed plugin has.
        rows: Table to the number of its rows.
        size: Its bytes on disk.
        trouble: Why figures are missing; None if there are all.
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
    """Return facts about a store, whether it is open or not; make and change nothing."""
    config = store.database.config
    facts: dict[str, Any] = {"rows": {}}
    try:
        facts["latest"] = len(store.migrations)
        if store.database.exists():
            with store.database.administer() as db:
                tables = [table for table in store.declared.tables if db.has_table(table)]
                rows = {table: count(db, f"FROM {quote(table)}") for table in tables}
                facts |= {"schema": db.schema_number(), "rows": rows, "size": db.size(tables)}
                db.check_privileges(store.declared.tables, writes=not config.read_only)
    except StoreError as error:
        facts["trouble"] = str(error)
    return Statistics(store=store.name, plugin=store.plugin, dialect=config.dialect, place=config.place, **facts)


def place_of(store: OpenStore[Any]) -> str | None:
    """Return where a store keeps its data, with passwords masked; None if nothing was made yet.

    Raises:
        Unavailable: Its database cannot be reached.
        SetupError: Its database's driver is missing.
    """
    return store.database.config.place if store.database.exists() else None


def purge(store: OpenStore[Any]) -> None:
    """Drop all data of a store, and the record of its migrations, for good.

    Raises:
        Busy: A host serves it.
        Unavailable: Its database cannot be reached.
        SetupError: Its database's driver is missing.
    """
    if store.database.exists():
        with store.database.turn(), store.database.exclusive_claim():
            store.database.erase(store.declared.tables)
