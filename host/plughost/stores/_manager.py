"""All stores of a host: opened together, reused from one generation to the next, closed when of no more use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from plughost._api.declarations import Check
from plughost._logging import silent_logger
from plughost.stores import _looking
from plughost.stores._config import POSTGRESQL, StoreConfig
from plughost.stores._errors import Busy, SetupError, StoreError, Unavailable
from plughost.stores._postgresql import PostgreSQL
from plughost.stores._sqlite import SQLite
from plughost.stores._store import OpenStore

if TYPE_CHECKING:
    import structlog

    from plughost._api.declarations import Store
    from plughost._api.events import Events
    from plughost.stores._config import StoresConfig
    from plughost.stores._databases import Database


class Stores(Mapping[str, OpenStore[Any]]):
    """The stores of one generation, by name.

    Attributes:
        failures: Plugin to the reason why a store of its cannot be opened; none of that plugin's is among the stores.
        doubts: Which stores could not be tried, and why.
        edited: Which of their migrations were edited after they had been applied.
        checks: The health check of each store.
    """

    def __init__(
        self,
        stores: Mapping[str, OpenStore[Any]],
        failures: Mapping[str, SetupError],
        doubts: Sequence[str] = (),
        edited: Sequence[str] = (),
    ) -> None:
        self._stores = dict(stores)
        self.failures: dict[str, SetupError] = dict(failures)
        self.doubts: tuple[str, ...] = tuple(doubts)
        self.edited: tuple[str, ...] = tuple(edited)
        self.checks: tuple[Check, ...] = tuple(
            Check(name=f"store {name}", check=partial(_looking.check, store)) for name, store in self._stores.items()
        )

    def __getitem__(self, name: str) -> OpenStore[Any]:
        return self._stores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def open(self, previous: Stores | None = None) -> None:
        """Keep what was migrated, and let operations in.

        A store whose migration can't be kept is migrated by its first operation that can. In place of a running
        generation, that goes only for those that come after one whose migration was kept: there is no way back then.

        Raises:
            StoreError: The first migration can't be kept; nothing was, and the running generation can go on.
        """
        kept = previous is None
        for name in sorted(self):
            store = self[name]
            if previous is not None and previous.get(name) is store:
                continue
            try:
                kept = store.open() or kept
            except StoreError:
                if not kept:
                    raise

    def of(self, plugins: Iterable[str]) -> Stores:
        """Return the stores of some plugins."""
        wanted = set(plugins)
        return Stores({name: store for name, store in self.items() if store.plugin in wanted}, {})

    def close(self, keep: Stores | None = None) -> None:
        """Close the stores, but for those that the next generation keeps as the same objects."""
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
    """Return stores that are not open yet: to be migrated, looked into, backed up, restored or purged.

    Args:
        declared: Plugin to the stores that it declares; names are unique.
        config: Where they are.
        previous: The running generation's. A store whose declaration, migrations and settings are the same is reused
            as the same object.
        logger: Told when a store is lost or back; nobody is by default.
        events: Told of every operation while somebody watches; nobody is by default.
    """
    logger = logger or silent_logger()
    stores: dict[str, OpenStore[Any]] = {}
    failures: dict[str, SetupError] = {}
    for plugin, declarations in declared.items():
        try:
            mine = [OpenStore[Any](d, plugin, database_for(d.name, config.of(d.name)), logger) for d in declarations]
        except SetupError as error:
            failures[plugin] = error
            continue
        for store in mine:
            before = previous.get(store.name) if previous is not None else None
            store.events = events
            stores[store.name] = before if before is not None and _same(before, store) else store
    return Stores(stores, failures)


def migrate_stores(prepared: Stores, previous: Stores | None = None) -> Stores:
    """Migrate stores, each in a transaction of its own that is kept by `Stores.open` and undone by `Stores.close`.

    A store whose database is out of reach now is migrated later, by its first operation. Where the running generation
    serves it well, it is a failure.

    The running generation's stores go on until these are open.

    Returns:
        The stores, and which plugins have one that can't be opened until somebody mends something.
    """
    failures = dict(prepared.failures)
    for name in sorted(prepared):  # the same order in every process: none waits for another in a circle
        store = prepared[name]
        before = previous.get(name) if previous is not None else None
        if before is store:
            continue
        if before is not None and before.database.config != store.database.config:
            before = None
        served = before is not None and before.state == "open"  # asked first: it is released while others migrate
        try:
            store.migrate(before)
        except SetupError as error:
            failures.setdefault(store.plugin, error)
        except (Unavailable, Busy) as error:
            if served:
                failures.setdefault(store.plugin, SetupError(str(error)))
    return _without_failures(prepared, failures, previous)


def try_stores(prepared: Stores) -> Stores:
    """See which stores could be migrated and opened, and leave all as they are; returns as `migrate_stores`."""
    failures = dict(prepared.failures)
    doubts, edited = [], []
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
    return _without_failures(prepared, failures, doubts=doubts, edited=edited)


def open_stores(
    declared: Mapping[str, Sequence[Store]], config: StoresConfig, previous: Stores | None = None
) -> Stores:
    """Prepare, migrate and open stores, where nothing else is to be decided in between; see `prepare_stores`."""
    stores = migrate_stores(prepare_stores(declared, config, previous), previous)
    stores.open(previous)
    return stores


def _without_failures(
    prepared: Stores,
    failures: Mapping[str, SetupError],
    previous: Stores | None = None,
    *,
    doubts: Sequence[str] = (),
    edited: Sequence[str] = (),
) -> Stores:
    """Close every store of a plugin that has one which failed; return the others."""
    failed = Stores({name: store for name, store in prepared.items() if store.plugin in failures}, failures)
    failed.close(keep=previous)
    return Stores({name: store for name, store in prepared.items() if name not in failed}, failures, doubts, edited)


def _same(one: OpenStore[Any], other: OpenStore[Any]) -> bool:
    """Return whether one store can go on in place of another; a new version may differ in its migrations alone."""
    try:
        return one.state != "closed" and one.identity == other.identity
    except SetupError:  # its migrations can't be read, which `OpenStore.migrate` says
        return False


def database_for(store: str, config: StoreConfig) -> Database:
    """Return the database of a store; nothing is opened or connected yet."""
    return PostgreSQL(store, config) if config.dialect == POSTGRESQL else SQLite(store, config)
