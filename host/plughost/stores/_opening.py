"""Opening a store in two steps: migrate it where nobody else sees it, then commit that and serve.

Whatever fails in between, of the store or of the host, undoes the first step, and so does the end of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from plughost.stores._errors import Busy, MigrationError, MisusedStore, SetupError, StoreError
from plughost.stores._migrations import MAKE_TABLE, apply, pending

if TYPE_CHECKING:
    from plughost.stores._entities import Entities
    from plughost.stores._migrations import Place
    from plughost.stores._sessions import Session, Sessions

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """An open store, with the columns of its tables as they were when it opened, and all that is to be closed."""

    sessions: Sessions
    entities: Entities | None
    schema: int
    columns: Mapping[str, frozenset[str]]
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
        if not session.ended:
            session.commit()
        return result


class OlderStore(Protocol):
    """A store as older code of this process serves it."""

    def paused(self) -> AbstractContextManager[None]:
        """Let its operations wait while a block runs."""
        ...

    def close(self) -> None:
        """Close it for good."""
        ...


class Opening:
    """A store whose migrations are applied, and seen by nobody else before `finish`."""

    def __init__(self, place: Place, *, older: OlderStore | None = None, rehearse: bool = False) -> None:
        """Migrate, and see whether the entities fit; to rehearse is to try what must wait for another host.

        Raises:
            SetupError: Somebody has to mend something first; the message says what.
            Unavailable: The database cannot be reached at the moment.
            Busy: It is being purged, restored or migrated; or another host serves it, for which a migration must wait.
        """
        self._place, self._database, self._older = place, place.database, older
        self._paused, self._resources, self._undecided = ExitStack(), ExitStack(), ExitStack()
        self._claim = self._resources.enter_context(ExitStack())
        self._alone = False
        try:
            with _mendable():
                self._claim.enter_context(self._database.serving())
                self._db = self._undecided.enter_context(self._database.administer())
                self._sessions = self._database.sessions(for_pony=place.store.entities is not None)
                self._resources.callback(self._sessions.close)
                self._sessions.claim()
                self._entities = _entities(place, self._sessions)
                self._pending = pending(place, self._db)
                for file in self._pending.edited:
                    place.logger.warning(
                        "a migration was edited after it had been applied; the database keeps what it did then",
                        file=file,
                    )
                if self._pending.steps:
                    self._db.begin(shared=True)
                    self._db.script(MAKE_TABLE)
                    self._db.keep()
                    if self._pending.breaking is not None:
                        self._be_alone(self._pending.breaking, rehearse=rehearse)
                    self._migrate()
                self._check_tables()
                self._columns = {table: self._db.columns(table) for table in place.store.tables}
        except BaseException:
            self.undo()
            raise

    @property
    def migrates(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._pending.steps)

    def finish(self) -> Opened:
        """Commit the migrations, and open; a `StoreError` where nothing of them was kept, or the store is purged."""
        schema = len(self._place.migrations)  # a database with more was refused
        try:
            if self.migrates:
                self._commit()
                self._place.logger.info("the store was migrated", before=self._pending.schema, schema=schema)
            if self._alone and self._older is not None:
                self._older.close()
            self._undecided.close()
            if self._alone:
                self._claim.close()
                self._claim.enter_context(self._database.serving())
                self._sessions.claim()
            self._paused.close()
        except BaseException:
            self.undo()
            raise
        return Opened(self._sessions, self._entities, schema, self._columns, self._resources)

    def undo(self) -> None:
        """Leave the store as it was, and let older code go on."""
        for each in (self._undecided, self._resources, self._paused):
            each.close()

    def _commit(self) -> None:
        try:
            self._db.keep()
        except StoreError as error:
            message = f"the migrations of the {self._database.label} failed, and nothing of them was kept: {error}"
            kind = MigrationError if type(error) is StoreError else type(error)  # such as a deferred constraint
            raise kind(message) from error

    def _migrate(self) -> None:
        """Apply what is pending once the lock is held: another process may have applied it meanwhile."""
        self._db.begin()
        self._pending = pending(self._place, self._db)
        apply(self._pending.steps, self._place.store, self._db)

    def _check_tables(self) -> None:
        if self._entities is not None:
            self._entities.check_tables(self._db)

    def _be_alone(self, breaking: str, *, rehearse: bool) -> None:
        """See that older code uses the store neither while it is migrated nor afterwards."""
        self._sessions.let_go()
        if self._older is not None:
            self._paused.enter_context(self._older.paused())
        self._claim.close()
        try:
            self._claim.enter_context(self._database.alone())
        except Busy as error:
            if rehearse:  # this process may be about to replace the other one, which must not leave for nothing
                self._migrate()
                self._check_tables()
            raise Busy(
                f"The migration {breaking} of the {self._database.label} is not for older code, and another host "
                "still serves the store: it is applied once that host has stopped."
            ) from error
        self._alone = True


def try_opening(place: Place) -> tuple[str, ...]:
    """See whether a store could be migrated and opened, and leave it as it is; raises what `Opening` does.

    Returns:
        The files of migrations that were edited after they had been applied.
    """
    with _mendable(), place.database.trial() as (db, sessions):
        entities = _entities(place, sessions)
        found = pending(place, db)
        if found.steps:
            db.begin()
            db.script(MAKE_TABLE)
            apply(found.steps, place.store, db)
        if entities is not None:
            entities.check_tables(db)
    return found.edited


def _entities(place: Place, sessions: Sessions) -> Entities | None:
    """Return the plugin's entities, where it has any."""
    if place.store.entities is None:
        return None
    from plughost.stores._entities import Entities  # noqa: PLC0415 - brings Pony, which few stores need

    return Entities(place.store, place.database.config, sessions)


@contextmanager
def _mendable() -> Iterator[None]:
    """Raise what a database refuses as a `SetupError`: somebody has to mend it, such as a lacking privilege."""
    try:
        yield
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise SetupError(str(error)) from error
