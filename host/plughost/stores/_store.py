"""A store as a plugin has it: operations that read and operations that write."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, NoReturn, ParamSpec, TypeVar

from plughost._api.events import Event, Events
from plughost.stores._connections import operation as current
from plughost.stores._errors import (
    Busy,
    ConnectionLost,
    Damaged,
    Exhausted,
    Forbidden,
    MisusedStore,
    OutcomeUnknown,
    Overran,
    ReadOnly,
    Refused,
    StoreError,
    Unavailable,
    Unreached,
    translate,
)
from plughost.stores._gate import Gate
from plughost.stores._migrations import Migration, Place, read_migrations
from plughost.stores._opening import Opening, try_opening
from plughost.stores._presence import Presence
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    import structlog

    from plughost._api.declarations import Store
    from plughost._runtime.claims import Claims
    from plughost.stores._databases import Database
    from plughost.stores._sessions import Session

E = TypeVar("E")
T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")

_FIRST_BACK_OFF: Final = 0.005
_LONGEST_BACK_OFF: Final = 0.25


class OpenStore(Generic[E]):
    """A store, open or about to be: `E` is what its factory of entities returns, or `Session` where it has none.

    An operation is a function whose first argument is that. It returns plain values: nothing of Pony may leave it. It
    does nothing else of note, as it may be run again. One thread runs one operation at a time, of whichever store.

    A store is prepared, then migrated, then open. Operations are refused before it is migrated, and wait from then on
    until it is open.

    Operations wait for a database that was just lost, for `StoreConfig.patience` seconds after the loss. From then on
    they fail at once with `Unavailable`, until one, `StoreConfig.pause` seconds after the last that tried, finds it
    back. A host starts without its database, too.

    Attributes:
        declared: The declaration.
        plugin: The plugin that declared it.
        database: Its database.
        events: Told of every operation while somebody watches.
        claims: What this host does alone of those that share the database. None where no other can use it.
    """

    def __init__(self, declared: Store, plugin: str, database: Database, logger: structlog.stdlib.BoundLogger) -> None:
        self.declared = declared
        self.plugin = plugin
        self.database = database
        self.events: Events | None = None
        self.claims: Claims | None = database.claims()
        self._label = database.label
        self._patience = database.config.patience
        self._gate = Gate(self._label, self._patience)
        self._prepared = True
        self._migrated: Opening | None = None
        self._closed = False
        self._logger = logger.bind(store=declared.name, plugin=plugin)
        self._presence = Presence(
            database, lambda: Opening(self._place).finish(), self._refuse, self._logger, declared.tables
        )

    @property
    def name(self) -> str:
        """The store's name."""
        return self.declared.name

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        """`sqlite` or `postgresql`, for the rare operation whose SQL must differ."""
        return "sqlite" if self.database.config.path else "postgresql"

    @property
    def state(self) -> Literal["open", "unavailable", "closed"]:
        """Whether it is open, waits for its database to be reachable (again), or is closed for good."""
        if self._closed:
            return "closed"
        return "open" if self._presence.opened is not None and self._presence.trouble is None else "unavailable"

    @property
    def schema(self) -> int | None:
        """The number of its schema; None before it was opened."""
        return self._presence.opened.schema if self._presence.opened else None

    @property
    def figures(self) -> dict[str, float]:
        """What its connections are doing, by name: how many there are and may be, and the waits for them."""
        if self._presence.opened is None:
            return {}
        sessions = self._presence.opened.sessions
        pool, locks = sessions.pool, sessions.lock_waits
        return {
            "connections_in_use": pool.turns.used,
            "connections_open": pool.open,
            "connections_at_most": pool.size,
            "connection_waits": pool.turns.waits.count,
            "connection_wait_seconds": pool.turns.waits.seconds,
            "lock_waits": locks.count,
            "lock_wait_seconds": locks.seconds,
        }

    @cached_property
    def migrations(self) -> tuple[Migration, ...]:
        """The migrations as they were when this was made: an upgrade in place replaces the files."""
        return read_migrations(self.declared, self.database.config.dialect)

    @property
    def identity(self) -> tuple[object, ...]:
        """What must be equal of two stores for one to go on in place of the other."""
        return self.plugin, self.declared, self.database.config, self.migrations

    @property
    def _place(self) -> Place:
        return Place(self.declared, self.plugin, self.database, self.migrations, self._logger)

    def migrate(self, older: OpenStore[Any] | None = None) -> None:
        """Migrate the store where nobody else sees it, until `open` keeps that or `close` undoes it.

        Raises:
            SetupError: Somebody has to mend something first; the message says what.
            Unavailable: The database cannot be reached. Operations try again, once the store is open.
            Busy: Others hold it. Operations try again, once the store is open.
        """
        self._gate.begin()
        try:
            self._gate.shut()
            self._prepared = False
            self._migrated = Opening(self._place, older=older, rehearse=True)
        except (Unavailable, Busy) as error:
            if not self._prepared:
                self._presence.fail(error)
            raise
        finally:
            self._gate.end()

    def open(self) -> bool:
        """Keep what was migrated, and let operations in; return whether anything was migrated.

        Raises:
            StoreError: What was migrated can't be kept, and nothing of it was. Operations try again.
        """
        opening, self._migrated = self._migrated, None
        try:
            if opening is not None:
                self._presence.opened = opening.finish()
            return opening is not None and opening.migrates
        except StoreError as error:
            self._presence.fail(error)
            raise
        finally:
            self._gate.open()

    def try_migrations(self) -> tuple[str, ...]:
        """See whether the store could be migrated and opened, and leave it as it is; raises as `migrate`.

        Returns:
            The files of migrations that were edited after they had been applied.
        """
        return try_opening(self._place)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let operations wait while a block runs, with no connection left; `Busy` if one takes too long before it."""
        self._gate.shut()
        try:
            self._presence.release()
            yield
        finally:
            if not self._closed:
                with suppress(StoreError):  # it goes on, and holds the claim that a host serves it
                    self._presence.ready(time.monotonic())
            self._gate.open()

    def close(self) -> None:
        """Close the connections for good; operations that still run keep theirs until they are done."""
        self._closed = True
        migrated, self._migrated = self._migrated, None
        if migrated is not None:
            migrated.undo()
        self._presence.release()
        if self.claims is not None:
            self.claims.close()
        self._gate.open()

    def read(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads, each query what is committed by then; on SQLite it waits for no writer.

        Args:
            operation: Called with the entities or the session, then `args` and `kwargs`; returns what this returns.
            *args: What it needs.
            **kwargs: What it needs.

        Raises:
            Busy: The database was too long in answering.
            Unavailable: The database cannot be reached.
            MisusedStore: It breaks a rule of this class.
            StoreError: The database refused it.
        """
        return self._operate(Mode.READ, operation, args, kwargs)

    def run(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in one transaction, which is committed if it returns and undone if it raises.

        It is called as by `read`, and again from the start, after a moment, where others were in its way.

        Raises:
            Duplicate: A unique value is there already. It may show as late as the commit, so catch it around `run`.
            Busy: Others held what it needs for longer than `StoreConfig.patience` seconds.
            Unavailable: The database cannot be reached or written.
            OutcomeUnknown: It may have been committed or not.
            MisusedStore: It breaks a rule of this class.
            StoreError: The database refused it.
        """
        return self._operate(Mode.WRITE, operation, args, kwargs)

    def single(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation of exactly one statement, which is committed when it returns to the operation.

        That is the quickest way to write. On SQLite, such statements of several threads share a commit; on PostgreSQL
        it is one round trip. If the connection is lost in that moment, the outcome is unknown, where `run` can ask.
        With entities this is the same as `run`, and raises the same in any case.
        """
        # Pony decides itself how many statements it needs.
        mode = Mode.SINGLE if self.declared.entities is None else Mode.WRITE
        return self._operate(mode, operation, args, kwargs)

    def batches(
        self, query: Callable[[E, K | None, int], Sequence[T]], key: Callable[[T], K], size: int = 1000
    ) -> Iterator[Sequence[T]]:
        """Yield all rows of a long list in batches, none empty; memory stays bounded, and no session stays open.

        Args:
            query: Called with the entities or the session, the key of the last row so far (None at first) and `size`;
                returns at most that many of the rows that follow, in the order of their keys.
            key: Returns a row's key.
            size: Rows in a batch.

        Yields:
            The batches.

        Raises:
            StoreError: As `read`.
        """
        after: K | None = None
        while True:
            rows = self.read(query, after, size)
            if rows:
                yield rows
            if len(rows) < size:
                return
            after = key(rows[-1])

    def ping(self) -> None:
        """Ask the database for a sign of life, and whether it is in order and takes writes; raises as `run`."""
        self._tell(Mode.READ, self._ping)

    def _operate(self, mode: Mode, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        if self.events is None or not self.events.watches("store"):
            return self._attempt(mode, operation, args, kwargs)
        return self._tell(mode, partial(self._attempt, mode, operation, args, kwargs))

    def _tell(self, mode: Mode, call: Callable[[], T]) -> T:
        """Call a function, and tell of it where somebody watches."""
        begun = time.perf_counter()
        outcome = "ok"
        try:
            return call()
        except Exception as error:
            outcome = type(error).__name__ if isinstance(error, StoreError) else "undone"
            raise
        finally:
            if self.events is not None:
                fields = {
                    "store": self.declared.name,
                    "kind": "read" if mode is Mode.READ else "write",
                    "outcome": outcome,
                    "seconds": time.perf_counter() - begun,
                    "waited": current.waited,
                }
                self.events.publish(Event("store", self.plugin, fields))

    def _attempt(self, mode: Mode, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run an operation once it is let in, and raise no driver's error."""
        deadline = time.monotonic() + self._patience
        self._gate.enter(deadline)
        try:
            if mode is not Mode.READ and self.database.config.read_only:
                raise ReadOnly(f"This host only reads the {self._label} (stores.read_only).")
            result = self._insist(mode, deadline, operation, args, kwargs)
            if self._presence.away or self._presence.failing is not None:
                with suppress(Exception):
                    self._presence.succeeded(mode)
            return result
        finally:
            self._gate.end()

    def _insist(
        self, mode: Mode, deadline: float, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> T:
        """Run an operation, again after a moment where `_helps_again` says so."""
        presence = self._presence
        back_off = _FIRST_BACK_OFF
        while True:
            session: Session | None = None
            try:
                opened = presence.opened
                if opened is None or presence.trouble is not None:
                    opened = presence.ready(deadline)
                session = opened.sessions.session(mode, deadline)
                return opened.perform(session, operation, args, kwargs)
            except Exception as error:  # noqa: BLE001 - anything else passes, see _judge
                found = self._judge(error, mode)
                if not self._helps_again(found, mode, deadline, session):
                    self._give_up(found, error)
            time.sleep(random.uniform(0, back_off))  # noqa: S311 - keeps two writers from meeting again  # nosec B311
            back_off = min(_LONGEST_BACK_OFF, 2 * back_off)

    def _helps_again(self, found: StoreError, mode: Mode, deadline: float, session: Session | None) -> bool:
        """Return whether to run an operation again that failed before its deadline.

        What others were in the way of, or no connection could be made for. A statement that was ended: a read, if
        somebody did that. A connection that was lost: only if nothing that was written over it was answered.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if isinstance(found, Overran):  # a statement, before the server's limit can be over
            return mode is Mode.READ and self._patience - left < self.database.config.statement_timeout
        if isinstance(found, ConnectionLost) and not isinstance(found, Unreached):
            return session is not None and session.untouched
        return isinstance(found, (Busy, Unreached))

    def _judge(self, error: Exception, mode: Mode) -> StoreError:
        """Return what an operation failed with, and take note of it; raise what is none of the store's."""
        found = translate(error, self._label, reads=mode is Mode.READ)
        if found is None:
            raise error
        if type(found) in {StoreError, Forbidden}:
            # A store that is closed was replaced by one of newer code, which may have migrated it.
            found = Unavailable(str(found)) if self._closed else self._presence.explain(found)
        elif type(found) is Unavailable and self.state == "open":
            found = self._presence.failed(found, mode)
        if isinstance(found, (ConnectionLost, Damaged, OutcomeUnknown)):
            self._presence.note(found)
        return found

    def _give_up(self, found: StoreError, error: Exception) -> NoReturn:
        """Raise what an operation failed with in the end."""
        if isinstance(found, (Busy, Exhausted, Forbidden, Refused)):
            self._presence.held(found)
        raise found from None if found is error else error

    def _ping(self) -> None:
        self._gate.enter(time.monotonic() + self._patience)
        try:
            self._presence.ready(0.0).sessions.look(writes=True)
            self._presence.succeeded(Mode.LOOK)
        except Exception as error:  # noqa: BLE001 - anything else passes, see _judge
            self._give_up(self._judge(error, Mode.LOOK), error)
        finally:
            self._gate.end()

    def _refuse(self) -> None:
        """Refuse operations of a store that is not to be opened yet, or any more."""
        if self._prepared:
            raise MisusedStore(
                f"The {self._label} is not open yet: stores open after the hooks that build the host. "
                "Use it in started, or when a request comes."
            )
        if self._closed:
            raise Unavailable(f"The {self._label} is closed: another version of its plugin serves, or none.")
