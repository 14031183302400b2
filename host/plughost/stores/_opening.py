"""Opening a store in two steps: migrate it where nobody else sees it, then commit that and serve.

Whatever fails in between, of the store or of the host, undoes the first step, and so does the end of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from plughost.stores._errors import Busy, MigrationError, MisusedStore, SetupError, StoreError
from plughost.stores._migrations import MAKE_TABLE, apply, pending

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import structlog

    from plughost._api.declarations import Store
    from plughost.stores._engines import Engine
    from plughost.stores._entities import Entities
    from plughost.stores._migrations import Migration
    from plughost.stores._sessions import Session, Sessions

T = TypeVar("T")


class OlderStore(Protocol):
    """A store as older code of this process serves it."""

    def paused(self) -> AbstractContextManager[None]:
        """Let its operations wait while a block runs."""
        ...

    def close(self) -> None:
        """Close it for good."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """What an open store consists of.

    Attributes:
        sessions: Makes the sessions, and owns the connections.
        entities: What the plugin's factory made; None where it has none, and operations get the session itself.
        schema: The number of its schema.
        resources: What is to be given back, the claim that a host serves the store last.
    """

    sessions: Sessions
    entities: Entities | None
    schema: int
    resources: ExitStack

    def perform(
        self, session: Session, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> T:
        """Run an operation once, and commit what it wrote."""
        try:
            if self.entities is not None:
                result = self.entities.call(session, operation, args, kwargs)
            else:
                result = operation(session, *args, **kwargs)
                if result.__class__ is GeneratorType:
                    message = f"{operation.__qualname__} returned a generator, which has no session any more: use list."
                    raise MisusedStore(message)
        except BaseException:
            session.undo()
            raise
        session.commit()
        return result

    def figures(self) -> dict[str, float]:
        """Return what its connections are doing, by name."""
        pool, locks = self.sessions.pool, self.sessions.lock_waits
        return {
            "connections_in_use": pool.used,
            "connections_open": pool.open,
            "connections_at_most": pool.size,
            "connection_waits": pool.waits.count,
            "connection_wait_seconds": pool.waits.seconds,
            "lock_waits": locks.count,
            "lock_wait_seconds": locks.seconds,
        }

    def close(self) -> None:
        """Close the connections, those in use when they are released, and give up the claim."""
        self.resources.close()


class Opening:
    """A store whose migrations are applied, and seen by nobody else before `finish`."""

    def __init__(
        self,
        store: Store,
        plugin: str,
        engine: Engine,
        migrations: Sequence[Migration],
        logger: structlog.stdlib.BoundLogger,
        *,
        older: OlderStore | None = None,
        rehearse: bool = False,
    ) -> None:
        """Migrate, and see whether the entities fit.

        Args:
            store: The declaration.
            plugin: The plugin that declared it, for messages.
            engine: Where it is.
            migrations: What `read_migrations` returned.
            logger: Told about migrations.
            older: The store as older code of this process serves it; None where none does.
            rehearse: Whether a migration that must wait for another host is tried already, and undone.

        Raises:
            SetupError: Somebody has to mend something first; the message says what.
            Unavailable: The database cannot be reached at the moment.
            Busy: It is being purged, restored or migrated; or another host serves it, for which a migration must wait.
        """
        self._store, self._engine, self._logger, self._older = store, engine, logger, older
        self._migrations = migrations
        self._paused, self._resources, self._undecided = ExitStack(), ExitStack(), ExitStack()
        self._claim = self._resources.enter_context(ExitStack())
        self._alone = False
        try:
            with naming(plugin):
                self._claim.enter_context(engine.serving())
                self._db = self._undecided.enter_context(engine.administer())
                self._sessions = engine.sessions(for_pony=store.entities is not None)
                self._resources.callback(self._sessions.close)
                self._entities = _entities(store, engine, self._sessions)
                self._pending = pending(store, migrations, engine.config.engine, self._db, logger)
                if self._pending.steps:
                    self._db.make_shared(MAKE_TABLE)
                    if self._pending.breaking is not None:
                        self._be_alone(self._pending.breaking, rehearse=rehearse)
                    self._migrate()
                if self._entities is not None:
                    self._entities.check_tables(self._db)
        except BaseException:
            self.undo()
            raise

    @property
    def migrates(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._pending.steps)

    def finish(self) -> Opened:
        """Commit the migrations, and open.

        Raises:
            StoreError: They could not be committed, and nothing of them was kept; or the store is being purged.
        """
        steps = self._pending.steps
        try:
            if steps:
                self._commit()
                self._logger.info("the store was migrated", before=self._pending.schema, schema=steps[-1].number)
            if self._alone and self._older is not None:
                self._older.close()
            self._undecided.close()
            if self._alone:
                self._claim.close()
                self._claim.enter_context(self._engine.serving())
            self._paused.close()
        except BaseException:
            self.undo()
            raise
        schema = steps[-1].number if steps else self._pending.schema
        return Opened(self._sessions, self._entities, schema, self._resources)

    def _commit(self) -> None:
        try:
            self._db.commit()
        except StoreError as error:
            message = f"the migrations of the store {self._store.name} failed, and nothing of them was kept: {error}"
            kind = MigrationError if type(error) is StoreError else type(error)  # such as a deferred constraint
            raise kind(message) from error

    def undo(self) -> None:
        """Leave the store as it was, and let older code go on."""
        for each in (self._undecided, self._resources, self._paused):
            each.close()

    def _migrate(self) -> None:
        """Apply what is pending once the lock is held: another process may have applied it meanwhile."""
        self._db.begin()
        name = self._engine.config.engine
        self._pending = pending(self._store, self._migrations, name, self._db, self._logger)
        apply(self._pending.steps, self._store.name, name, self._db)

    def _be_alone(self, breaking: str, *, rehearse: bool) -> None:
        """See that older code uses the store neither while it is migrated nor afterwards."""
        self._sessions.pool.disconnect()
        if self._older is not None:
            self._paused.enter_context(self._older.paused())
        self._claim.close()
        try:
            self._claim.enter_context(self._engine.alone())
        except Busy as error:
            if rehearse:  # this process may be about to replace the other one, which must not leave for nothing
                self._migrate()
                if self._entities is not None:
                    self._entities.check_tables(self._db)
            message = (
                f"The migration {breaking} of the store {self._store.name} is not for older code, and another host "
                "still serves the store: it is applied once that host has stopped."
            )
            raise Busy(message) from error
        self._alone = True


def try_opening(
    store: Store,
    plugin: str,
    engine: Engine,
    migrations: Sequence[Migration],
    logger: structlog.stdlib.BoundLogger,
) -> None:
    """See whether a store could be migrated and opened, and leave it as it is.

    Args:
        store: The declaration.
        plugin: The plugin that declared it, for messages.
        engine: Where it is.
        migrations: What `read_migrations` returned.
        logger: Told about an edited migration.

    Raises:
        SetupError: It could not; the message says why.
        Unavailable: That can't be tried at the moment.
        Busy: Likewise.
    """
    name = engine.config.engine
    with naming(plugin), engine.trial() as (db, sessions):
        entities = _entities(store, engine, sessions)
        steps = pending(store, migrations, name, db, logger).steps
        if steps:
            db.begin()
            db.script(MAKE_TABLE)
            apply(steps, store.name, name, db)
        if entities is not None:
            entities.check_tables(db)


def _entities(store: Store, engine: Engine, sessions: Sessions) -> Entities | None:
    """Return the plugin's entities, where it has any."""
    if store.entities is None:
        return None
    from plughost.stores._entities import Entities  # noqa: PLC0415 - brings Pony, which few stores need

    return Entities(store, engine.config, sessions)


@contextmanager
def naming(plugin: str) -> Iterator[None]:
    """Name the plugin in what somebody has to mend."""
    try:
        yield
    except SetupError as error:
        message = f"plugin {plugin}: {error}"
        raise type(error)(message) from error
