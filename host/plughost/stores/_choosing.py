"""The engine of a store, chosen by its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost.stores._config import POSTGRESQL, StoreConfig

if TYPE_CHECKING:
    from plughost.stores._engines import Engine


def engine_for(store: str, config: StoreConfig) -> Engine:
    """Return the engine of a store; nothing is opened or connected yet.

    Args:
        store: The store's name.
        config: The store's settings.
    """
    # Each engine is imported only where it is used, since PostgreSQL's driver is an extra.
    if config.engine == POSTGRESQL:
        from plughost.stores._postgresql import PostgreSQL  # noqa: PLC0415 - see above

        return PostgreSQL(store, config)
    from plughost.stores._sqlite import SQLite  # noqa: PLC0415 - see above

    return SQLite(store, config)
