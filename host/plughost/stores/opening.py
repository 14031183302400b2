"""Opening a store: migrate it, make its entities, and give Pony its connections."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pony import orm

from plughost.stores.config import POSTGRESQL, SQLITE
from plughost.stores.errors import SetupError, StoreError
from plughost.stores.failures import translate
from plughost.stores.migrations import migrate
from plughost.stores.sessions import Session

if TYPE_CHECKING:
    import structlog

    from plughost.declarations import Store
    from plughost.stores.connections import Connections
    from plughost.stores.engines import Engine

_PONY_NAMES: Final = {SQLITE: "sqlite", POSTGRESQL: "postgres"}


@dataclass(frozen=True, slots=True)
class Opened:
    """What an open store consists of.

    Attributes:
        database: Pony's own object.
        entities: What the plugin's factory returned.
        connections: Its pool.
        reading: The session of operations that read.
        writing: The session of operations that write.
        schema: The number of its schema.
        resources: What is to be given back, the claim that a host serves the store last.
    """

    database: Any
    entities: Any
    connections: Connections
    reading: Session
    writing: Session
    schema: int
    resources: ExitStack

    def close(self) -> None:
        """Close the connections, those in use when they are released, and give up the claim."""
        self.resources.close()


def open_store(store: Store, plugin: str, engine: Engine, logger: structlog.stdlib.BoundLogger) -> Opened:
    """Open a store.

    Args:
        store: The declaration.
        plugin: The plugin that declared it, for messages.
        engine: Where it is.
        logger: Told about an edited migration.

    Raises:
        SetupError: Somebody has to mend something first; the message says what.
        Unavailable: The database cannot be reached at the moment.
        Busy: It is being purged, restored or migrated.
    """
    resources = ExitStack()
    try:
        resources.enter_context(engine.serving())
        schema = migrate(store, engine, logger)
        connections = engine.connections()
        resources.callback(connections.close)
        reading = Session(connections, writes=False)
        # SQLite lets one writer in at a time, so nothing can have changed since it read; and a comparison of its
        # REALs with decimals is better not made.
        writing = Session(connections, writes=True, optimistic=engine.config.engine != SQLITE)
        database, entities = _map(store, engine, connections, reading)
    except BaseException as error:
        resources.close()
        if not isinstance(error, SetupError):
            raise
        message = f"plugin {plugin}: {error}"
        raise type(error)(message) from error
    return Opened(database, entities, connections, reading, writing, schema, resources)


def _map(store: Store, engine: Engine, connections: Connections, reading: Session) -> tuple[Any, Any]:
    """Return Pony's database and the plugin's entities, mapped to tables that were seen to have all their columns."""
    database = orm.Database()
    try:
        arguments = (str(engine.config.path),) if engine.config.path else ()
        database.bind(engine.provider(), *arguments, pony_pool_mockup=connections)
        database.provider_name = _PONY_NAMES[engine.config.engine]
        entities = store.entities(database)
        with reading:
            database.generate_mapping(check_tables=True)
    except Exception as error:  # a plugin's own code may raise anything
        found = translate(error, f"store {store.name}")
        if found is not None and type(found) is not StoreError:
            raise found from error
        message = f"the entities of the store {store.name} do not fit its tables, or are wrong: {error}"
        raise SetupError(message) from error
    return database, entities
