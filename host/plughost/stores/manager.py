"""All stores of a host: opened together, carried over from one generation to the next, closed when of no more use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from plughost.declarations import Check
from plughost.logs import silent_logger
from plughost.stores import health
from plughost.stores.engines import engine_for
from plughost.stores.errors import Busy, SetupError, Unavailable
from plughost.stores.store import OpenStore

if TYPE_CHECKING:
    import structlog

    from plughost.declarations import Store
    from plughost.events import Events
    from plughost.stores.config import StoresConfig


class Stores(Mapping[str, OpenStore[Any]]):
    """The stores of one generation, by name.

    Attributes:
        failures: Plugin to the reason why a store of its cannot be opened; none of that plugin's is among the stores.
        checks: The health check of each store.
    """

    def __init__(self, stores: Mapping[str, OpenStore[Any]], failures: Mapping[str, SetupError]) -> None:
        """Keep both."""
        self._stores = dict(stores)
        self.failures = dict(failures)
        self.checks = tuple(
            Check(name=f"store {name}", check=partial(health.check, store)) for name, store in self._stores.items()
        )

    def __getitem__(self, name: str) -> OpenStore[Any]:
        return self._stores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)

    def close(self, keep: Stores | None = None) -> None:
        """Close the stores.

        Args:
            keep: The next generation's, which are left open where they are the same objects.
        """
        kept = {id(store) for store in keep.values()} if keep is not None else set()
        for store in self.values():
            if id(store) not in kept:
                store.close()


def prepare_stores(
    declared: Mapping[str, Sequence[Store]], config: StoresConfig, logger: structlog.stdlib.BoundLogger | None = None
) -> Stores:
    """Return stores that are not open yet, as the command line needs them to look into, back up, restore or purge.

    Args:
        declared: Plugin to the stores that it declares; names are unique.
        config: Where they are.
        logger: Told when a store is lost or back; nobody is by default.
    """
    logger = logger or silent_logger()
    stores: dict[str, OpenStore[Any]] = {}
    failures: dict[str, SetupError] = {}
    for plugin, declarations in declared.items():
        try:
            mine = {
                d.name: OpenStore[Any](d, plugin, engine_for(d.name, config.of(d.name)), logger) for d in declarations
            }
        except SetupError as error:
            failures[plugin] = error
        else:
            stores |= mine
    return Stores(stores, failures)


def open_stores(
    declared: Mapping[str, Sequence[Store]],
    config: StoresConfig,
    previous: Stores | None = None,
    logger: structlog.stdlib.BoundLogger | None = None,
    events: Events | None = None,
) -> Stores:
    """Migrate and open stores, each on its own; one whose database is out of reach now opens later by itself.

    Args:
        declared: Plugin to the stores that it declares; names are unique.
        config: Where they are.
        previous: The running generation's. A store whose declaration and settings are the same is carried over as
            the same object.
        logger: Told when a store is lost or back; nobody is by default.
        events: Told of every operation while somebody watches; nobody is by default.

    Returns:
        The stores, and which plugins have one that cannot be opened until somebody mends something.
    """
    prepared = prepare_stores(declared, config, logger)
    stores: dict[str, OpenStore[Any]] = {}
    failures = dict(prepared.failures)
    for name, store in prepared.items():
        before = previous.get(name) if previous is not None else None
        if before is not None and _same(before, store):
            stores[name] = before
            continue
        stores[name] = store
        store.events = events
        try:
            store.open()
        except SetupError as error:
            failures.setdefault(store.plugin, error)
        except (Unavailable, Busy):
            pass  # it logged why, and tries again with the first operation
    for name, store in list(stores.items()):
        if store.plugin in failures:
            del stores[name]
            if previous is None or previous.get(name) is not store:
                store.close()
    return Stores(stores, failures)


def _same(one: OpenStore[Any], other: OpenStore[Any]) -> bool:
    return (
        one.state != "closed"
        and one.plugin == other.plugin
        and one.declared == other.declared
        and one.engine.config == other.engine.config
    )
