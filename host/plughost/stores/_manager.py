"""All stores of a host: opened together, reused by the next generation, closed when no longer used, and inspected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from plughost._api.declarations import Check, Health
from plughost._logging import silent_logger
from plughost.stores._databases import database_for
from plughost.stores._errors import Busy, Damaged, SetupError, StoreError, Unavailable
from plughost.stores._migrations import refuse_newer
from plughost.stores._sessions import count, quote
from plughost.stores._store import OpenStore

if TYPE_CHECKING:
    import structlog

    from plughost._api.declarations import Store
    from plughost._api.events import Events
    from plughost.stores._config import StoresConfig


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


@dataclass(frozen=True, eq=False)
class Stores(Mapping[str, OpenStore[Any]]):
    """The stores of one generation, by name.

    Attributes:
        failures: Plugin to the reason why one of its stores cannot be opened. Then none of its stores is here.
        doubts: Messages about stores that could not be tried.
        edited: Messages about migrations that were edited after they had been applied.
    """

    stores: Mapping[str, OpenStore[Any]] = field(default_factory=dict)
    failures: Mapping[str, SetupError] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """The health check of each store."""
        return tuple(Check(name=f"store {name}", check=partial(check, store)) for name, store in self.items())

    def __getitem__(self, name: str) -> OpenStore[Any]:
        return self.stores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stores)

    def __len__(self) -> int:
        return len(self.stores)

    def open(self, previous: Stores | None = None) -> None:
        """Commit the migrations, and admit operations.

        If a commit fails, the store's first operation migrates it again. But in place of a running generation, that
        holds only after another store's migration was committed, since then there is no way back.

        Raises:
            StoreError: The first commit failed, and nothing was kept. The running generation can go on.
        """
        is_committed = previous is None
        for name in sorted(self):
            store = self[name]
            if previous is not None and previous.get(name) is store:
                continue
            try:
                is_committed = store.open() or is_committed
            except StoreError:
                if not is_committed:
                    raise

    def of(self, plugins: Iterable[str]) -> Stores:
        """Return the stores of some plugins."""
        wanted = set(plugins)
        return Stores({name: store for name, store in self.items() if store.plugin in wanted})

    def close(self, keep: Stores | None = None) -> None:
        """Close the stores, except those that the next generation reuses."""
        kept = {id(store) for store in keep.values()} if keep is not None else set()
        for store in self.values():
            if id(store) not in kept:
                store.close()


def prepare_stores(
    declared: Mapping[str, Sequence[Store]],
    config: StoresConfig,
    previous: Stores | None = None,
    logger: structlog.stdlib.BoundLogger | None = None,
    events: Events | None = None,
) -> Stores:
    """Return stores that are not open yet, for migrating, inspecting, backing up, restoring or purging.

    Args:
        declared: Plugin to the stores that it declares. Names are unique.
        config: The settings of the stores.
        previous: The running generation's stores. One with the same declaration, migrations and settings is reused.
        logger: Logs when a store is lost or back. By default nothing is logged.
        events: Where every operation is published while somebody watches. By default nowhere.
    """
    logger = logger or silent_logger()
    stores: dict[str, OpenStore[Any]] = {}
    failures: dict[str, SetupError] = {}
    for plugin, declarations in declared.items():
        try:
            fresh = [OpenStore[Any](d, plugin, database_for(d.name, config.of(d.name)), logger) for d in declarations]
        except SetupError as error:
            failures[plugin] = error
            continue
        for store in fresh:
            running = previous.get(store.name) if previous is not None else None
            store.events = events
            stores[store.name] = running if running is not None and _is_reusable(running, store) else store
    return Stores(stores, failures)


def migrate_stores(prepared: Stores, previous: Stores | None = None) -> Stores:
    """Migrate stores, each in a transaction that `Stores.open` commits and `Stores.close` rolls back.

    A store whose database is out of reach is migrated later, by its first operation. It is a failure if the running
    generation serves it. The running generation's stores serve until these are open.

    Returns:
        The stores without those of plugins that have a failure, and the failures.
    """
    failures = dict(prepared.failures)
    for name in sorted(prepared):  # every process locks in the same order, which prevents deadlocks
        store = prepared[name]
        running = previous.get(name) if previous is not None else None
        if running is store:
            continue
        served = running is not None and running.state == "open"  # before `migrate`, which may close its connections
        if running is not None and running.database.config != store.database.config:
            running = None
        try:
            store.migrate(running)
        except SetupError as error:
            failures.setdefault(store.plugin, error)
        except (Unavailable, Busy) as error:
            # With other settings, Busy may mean the running store, which ends soon.
            if served and (running is not None or isinstance(error, Unavailable)):
                failures.setdefault(store.plugin, SetupError(str(error)))
            else:
                store.defer(error)
    return _without_failures(prepared, failures, previous)


def try_stores(prepared: Stores) -> Stores:
    """Check which stores could be migrated and opened, and change nothing. Returns as `migrate_stores`."""
    failures = dict(prepared.failures)
    doubts: list[str] = []
    edited: list[str] = []
    for store in prepared.values():
        try:
            files = store.try_migrations()
        except SetupError as error:
            failures.setdefault(store.plugin, error)
        except (Unavailable, Busy) as error:
            reason = str(error).removeprefix(f"store {store.name}: ")
            doubts.append(f"the store {store.name} could not be tried: {reason}")
        else:
            edited += [
                f"the store {store.name}: the migration {file} was edited after it had been applied; the database "
                "keeps what it did then. Undo the edit, and let a new migration make the change"
                for file in files
            ]
    return replace(_without_failures(prepared, failures), doubts=tuple(doubts), edited=tuple(edited))


def open_stores(
    declared: Mapping[str, Sequence[Store]], config: StoresConfig, previous: Stores | None = None
) -> Stores:
    """Prepare, migrate and open stores at once. See `prepare_stores`."""
    stores = migrate_stores(prepare_stores(declared, config, previous), previous)
    stores.open(previous)
    return stores


def _without_failures(prepared: Stores, failures: Mapping[str, SetupError], previous: Stores | None = None) -> Stores:
    """Close all stores of each plugin with a failure, and return the others."""
    prepared.of(failures).close(keep=previous)
    usable = {name: store for name, store in prepared.items() if store.plugin not in failures}
    return Stores(usable, failures)


def _is_reusable(one: OpenStore[Any], other: OpenStore[Any]) -> bool:
    """Return whether one store can go on in place of another. Versions may differ in their migrations alone."""
    try:
        return one.state != "closed" and one.identity == other.identity
    except SetupError:  # its migrations can't be read, which `OpenStore.migrate` reports
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Facts about a store.

    Attributes:
        place: The file, or the URL with its password masked.
        schema: The number of the newest applied migration. 0 if nothing was made yet.
        latest: The number of the newest migration that the installed plugin has.
        rows: Table to the number of its rows.
        size: Its bytes on disk.
        trouble: Why figures are missing. None if there are all.
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
    """Return facts about a store, whether it is open or not. Make and change nothing."""
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
    """Return where a store keeps its data, with passwords masked. None if nothing was made yet.

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
        MigrationError: On PostgreSQL, a newer version migrated it, whose tables would stay.
    """
    if store.database.exists():
        with store.database.turn(), store.database.exclusive_claim():
            if store.dialect == "postgresql":
                with store.database.administer() as db:
                    todo = "install the newer version, then purge"
                    refuse_newer(store.declared, len(store.migrations), db.schema_number(), todo)
            store.database.erase(store.declared.tables)
