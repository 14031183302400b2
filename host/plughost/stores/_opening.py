"""Opening a store in two steps: migrate it in a transaction that nobody else sees, then commit and serve.

Any failure in between rolls the first step back, be it of the store or the host, and so does the end of the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from plughost.stores._errors import (
    Busy,
    ConnectionLost,
    MigrationError,
    MisusedStore,
    OutcomeUnknown,
    SetupError,
    StoreError,
    Unavailable,
)
from plughost.stores._migrations import CREATE_TABLE, apply_migrations, find_pending

if TYPE_CHECKING:
    from plughost.stores._databases import AdminSession, Sessions
    from plughost.stores._entities import Entities
    from plughost.stores._migrations import MigrationTarget
    from plughost.stores._sessions import Session

T = TypeVar("T")

_POLL_INTERVAL: Final = 0.05


class OlderStore(Protocol):
    """The same store, as older code of this process serves it: an `OpenStore`."""

    def paused(self) -> AbstractContextManager[None]: ...

    def close(self) -> None: ...


class StoreHandle:
    """A store that opens in two steps: its migrations are applied, but visible to nobody else before `commit`.

    Attributes:
        schema: The number of its schema, once it is open.
        columns: Table to the columns that it had when the store opened.
    """

    def __init__(self, target: MigrationTarget, *, older: OlderStore | None = None, rehearse: bool = False) -> None:
        """Migrate, and check the entities. Raises as `OpenStore.migrate`.

        `rehearse` tries a migration even if it has to wait for another host.
        """
        self._target, self._database, self._older = target, target.database, older
        self._paused, self._resources, self._uncommitted = ExitStack(), ExitStack(), ExitStack()
        self._claim = self._resources.enter_context(ExitStack())
        self._is_exclusive = False
        self.schema = len(target.migrations)  # a newer one is refused
        try:
            with _as_setup_error():
                self._claim.enter_context(self._database.shared_claim())
                self._db = self._database.administer()
                self._uncommitted.enter_context(self._db)
                self.sessions = self._database.sessions(for_pony=target.store.entities is not None)
                self._resources.callback(self.sessions.close)
                self.sessions.claim()
                self._entities = _entities(target, self._db, self.sessions)
                self._pending = find_pending(target, self._db)
                for file in self._pending.edited:
                    target.logger.warning(
                        "a migration was edited after it had been applied; the database keeps what it did then",
                        file=file,
                    )
                if self._pending.steps:
                    self._db.begin_transaction(shared=True)
                    self._db.script(CREATE_TABLE)
                    self._db.commit_transaction()
                    if self._pending.breaking is not None:
                        self._exclude_older_code(self._pending.breaking, rehearse=rehearse)
                    if before := self._pending.schema:  # with data, it may take long
                        target.logger.info("the store is being migrated", before=before, schema=self.schema)
                    self._migrate()
                self._check_entities()
                self.columns = {table: self._db.columns(table) for table in target.store.tables}
        except BaseException:
            self.close()
            raise

    def commit(self) -> bool:
        """Commit the migrations, and return whether there were any. Then the store is open.

        Raises:
            OutcomeUnknown: Nobody can tell whether they were kept.
            StoreError: Nothing of them was kept, or the store is being purged.
        """
        try:
            if self._pending.steps:
                self._commit_migrations()
                self._target.logger.info("the store was migrated", before=self._pending.schema, schema=self.schema)
            older, self._older = self._older, None  # this store must not keep each one before it alive
            if self._is_exclusive and older is not None:
                older.close()
            self._uncommitted.close()
            if self._is_exclusive:
                self._claim.close()
                self._claim.enter_context(self._database.shared_claim())
                self.sessions.claim()
            self._paused.close()
        except BaseException:
            self.close()
            raise
        return bool(self._pending.steps)

    def close(self) -> None:
        """Close the connections. Before `commit`, this leaves the store as it was, and lets older code continue."""
        for each in (self._uncommitted, self._resources, self._paused):
            each.close()

    def run_operation(
        self, session: Session, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> T:
        """Run an operation once, and commit what it wrote."""
        try:
            if self._entities is not None:
                result = self._entities.run_operation(session, operation, args, kwargs)
            else:
                result = operation(session, *args, **kwargs)
                if result.__class__ is GeneratorType:
                    message = f"{operation.__qualname__} returned a generator, which has no session any more: use list."
                    raise MisusedStore(message)
        except BaseException:
            session.undo()
            raise
        if not session.ended:
            session.commit()
        return result

    def _commit_migrations(self) -> None:
        try:
            self._db.commit_transaction()
        except StoreError as error:
            if isinstance(error, ConnectionLost) and self._were_committed(error):
                return
            message = f"the migrations of the {self._database.label} failed, and nothing of them was kept: {error}"
            kind = MigrationError if type(error) is StoreError else type(error)  # such as a deferred constraint
            raise kind(message) from error

    def _were_committed(self, error: ConnectionLost) -> bool:
        """Return whether the migrations were kept though the connection was lost. `OutcomeUnknown` if nobody can tell.

        The server may still be committing. It holds the lock of the migrations until then, which this waits for.
        """
        deadline = time.monotonic() + self._database.config.patience
        while True:
            try:
                with self._database.administer() as db:
                    db.begin_transaction()
                    return not find_pending(self._target, db).steps
            except (Unavailable, Busy) as found:
                if time.monotonic() > deadline:
                    message = f"whether the migrations of the {self._database.label} were kept is unknown: {error}"
                    raise OutcomeUnknown(message) from found
            time.sleep(_POLL_INTERVAL)

    def _migrate(self) -> None:
        """Take the lock, and apply what is still pending: another process may have migrated meanwhile."""
        self._db.begin_transaction()
        self._pending = find_pending(self._target, self._db)
        apply_migrations(self._pending.steps, self._target.store, self._db)

    def _check_entities(self) -> None:
        if self._entities is not None:
            self._entities.check_tables(self._db)

    def _exclude_older_code(self, breaking: str, *, rehearse: bool) -> None:
        """Keep older code from using the store during the migration and afterwards."""
        self.sessions.release_claim()
        self._paused.enter_context(self._database.turn())
        if self._older is not None:
            self._paused.enter_context(self._older.paused())
        self._claim.close()
        try:
            self._claim.enter_context(self._database.exclusive_claim())
        except Busy as error:
            if rehearse:  # the other host must not be stopped for a migration that fails
                self._migrate()
                self._check_entities()
            raise Busy(
                f"The migration {breaking} of the {self._database.label} is not for older code, and another host "
                "still serves the store: it is applied once that host has stopped."
            ) from error
        self._is_exclusive = True


def try_opening(target: MigrationTarget) -> tuple[str, ...]:
    """Check a store as `OpenStore.try_migrations` does."""
    with _as_setup_error(), target.database.trial() as db:
        entities = _entities(target, db)
        found = find_pending(target, db)
        if found.steps:
            db.begin_transaction()
            db.script(CREATE_TABLE)
            # Another process may have migrated while this one waited for the lock.
            apply_migrations(find_pending(target, db).steps, target.store, db)
        if entities is not None:
            entities.check_tables(db)
    return found.edited


def _entities(target: MigrationTarget, db: AdminSession, sessions: Sessions | None = None) -> Entities | None:
    """Define the plugin's entities, if it has any."""
    if target.store.entities is None:
        return None
    from plughost.stores._entities import Entities  # noqa: PLC0415 - brings Pony, which few stores need

    return Entities(target.store, target.database.config, db, sessions)


@contextmanager
def _as_setup_error() -> Iterator[None]:
    """Raise a database's refusal as a `SetupError`: somebody has to fix it, such as a missing privilege."""
    try:
        yield
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise SetupError(str(error)) from error
