"""A store as a plugin uses it: operations that read and operations that write."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar

from plughost._api.events import Event, Events
from plughost.stores._availability import Availability
from plughost.stores._errors import (
    Busy,
    ConnectionLost,
    OutcomeUnknown,
    Overran,
    ReadOnly,
    StoreError,
    Unavailable,
    Unreached,
)
from plughost.stores._migrations import Migration, MigrationTarget
from plughost.stores._opening import StoreHandle, try_opening
from plughost.stores._pool import Gate, current_operation
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    import structlog

    from plughost._api.declarations import Store
    from plughost.stores._claims import Claims
    from plughost.stores._databases import Database
    from plughost.stores._sessions import Session

E = TypeVar("E")
T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")

_FIRST_BACK_OFF: Final = 0.005
_LONGEST_BACK_OFF: Final = 0.25


class OpenStore(Generic[E]):
    """A store that is open, or about to be.

    `E` is what operations get as their first argument: what `Store.entities` returns, or else a `Session`. An
    operation returns plain values, nothing of Pony. It may be run again, so it changes nothing but the store. A thread
    runs one operation at a time, whatever the store.

    A store is prepared, then migrated, then opened. Operations are refused before it is migrated. From then on they
    wait until it is open.

    If the database is lost, operations wait for it until `patience` seconds after the loss. Then they fail at once with
    `Unavailable`, and one operation every `pause` seconds tries to reach it again. A host starts without its database,
    too. Both are settings of stores.

    Attributes:
        declared: The declaration.
        plugin: The plugin that declared it.
        database: Its database.
        events: Where operations are published while somebody watches.
        claims: What only one of the hosts on the database does. None if no other host can use it.
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
        self._uncommitted: StoreHandle | None = None
        self._target = MigrationTarget(declared, database, logger.bind(store=declared.name, plugin=plugin))
        self._availability = Availability(self._target, self._gate)

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
        if self._gate.is_closed:
            return "closed"
        is_open = self._availability.handle is not None and self._availability.loss is None
        return "open" if is_open else "unavailable"

    @property
    def problem(self) -> str | None:
        """Why operations fail, as far as it is known without asking the database."""
        loss = self._availability.loss
        if loss is None and self._availability.failure is not None:
            return "its database fails, as on a full disk; the log has the reason"
        return None if loss is None else str(loss.problem)

    @property
    def schema(self) -> int | None:
        """The number of its schema. None before it is opened."""
        handle = self._availability.handle
        return handle.schema if handle is not None else None

    @property
    def figures(self) -> dict[str, float]:
        """How many connections are open and in use, their limit, and the waits for them and for locks."""
        handle = self._availability.handle
        if handle is None:
            return {}
        pool = handle.sessions
        return {
            "connections_in_use": pool.slots.in_use,
            "connections_open": pool.connections,
            "connections_at_most": pool.size,
            "connection_waits": pool.slots.waits.count,
            "connection_wait_seconds": pool.slots.waits.seconds,
            "lock_waits": pool.lock_waits.count,
            "lock_wait_seconds": pool.lock_waits.seconds,
        }

    @property
    def migrations(self) -> tuple[Migration, ...]:
        """The migrations, read once: an upgrade in place replaces the files."""
        return self._target.migrations

    @property
    def identity(self) -> tuple[object, ...]:
        """What must be equal for one store to go on in place of another."""
        return self.plugin, self.declared, self.database.config, self.migrations

    def migrate(self, older: OpenStore[Any] | None = None) -> None:
        """Migrate the store, unseen by others until `open` commits that or `close` rolls it back.

        Raises:
            SetupError: Somebody has to fix something first. The message says what.
            Unavailable: The database cannot be reached.
            Busy: Others hold it.
        """
        self._gate.drain()
        self._uncommitted = StoreHandle(self._target, older=older, rehearse=True)

    def defer(self, error: StoreError) -> None:
        """Record why it can't be migrated yet. Its operations try again, once it is open."""
        self._availability.record_loss(error, at_opening=True)

    def open(self) -> bool:
        """Commit the migrations, and admit operations. Return whether anything was migrated.

        Raises:
            StoreError: The commit failed, and nothing was kept. Operations try again.
        """
        handle, self._uncommitted = self._uncommitted, None
        try:
            was_migrated = handle is not None and handle.commit()
            if handle is not None:
                self._availability.opened(handle, self._availability.loss)
        except StoreError as error:
            self._availability.record_loss(error, at_opening=True)
            raise
        finally:
            self._gate.refusal = None
        return was_migrated

    def try_migrations(self) -> tuple[str, ...]:
        """Check whether the store could be migrated and opened, and change nothing. Raises as `migrate`.

        Returns:
            The files of migrations that were edited after they had been applied.
        """
        return try_opening(self._target)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Make operations wait while a block runs, without connections. `Busy` if one takes too long before it."""
        self._gate.drain()
        try:
            self._availability.close()
            yield
        finally:
            if self.state != "closed":
                self._gate.refusal = None
                with suppress(StoreError):  # it goes on, and claims that a host serves it
                    self._availability.ensure_open(time.monotonic())

    def close(self) -> None:
        """Close the connections for good. Operations that still run keep theirs until they end."""
        closed = f"The {self._label} is closed: another version of its plugin serves, or none."
        self._gate.refusal = Unavailable(closed)
        handle, self._uncommitted = self._uncommitted, None
        if handle is not None:
            handle.close()
        self._availability.close()
        if self.claims is not None:
            self.claims.close()

    def read(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads. Each query sees what is committed by then. On SQLite, no writer delays it.

        Args:
            operation: Called with the entities or the session, then `args` and `kwargs`. Its result is returned.
            *args: Passed to the operation.
            **kwargs: Passed to the operation.

        Raises:
            Busy: The database took too long to answer.
            Unavailable: The database cannot be reached.
            MisusedStore: The operation breaks a rule of this class.
            StoreError: The database refused a statement.
        """
        return self._observe(Mode.READ, operation, args, kwargs)

    def run(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in one transaction, which is committed if it returns and rolled back if it raises.

        It is called as by `read`. If others are in its way, it is run again from its start after a moment.

        Raises:
            Duplicate: A unique value exists already. This may only show at the commit, so catch it around `run`.
            Busy: Others held what it needs for longer than the setting `patience`.
            Unavailable: The database cannot be reached or written.
            OutcomeUnknown: The transaction may have been committed or not.
            MisusedStore: The operation breaks a rule of this class.
            StoreError: The database refused a statement.
        """
        return self._observe(Mode.WRITE, operation, args, kwargs)

    def single(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation of exactly one statement, which is committed at once.

        This is the fastest way to write. On SQLite, statements of several threads share a commit. On PostgreSQL, it
        takes one round trip. If the connection is lost meanwhile, the outcome is unknown, while `run` can ask for it.
        With entities, this is the same as `run`. It raises what `run` raises.
        """
        # Pony decides itself how many statements it needs.
        mode = Mode.SINGLE if self.declared.entities is None else Mode.WRITE
        return self._observe(mode, operation, args, kwargs)

    def batches(
        self, query: Callable[[E, K | None, int], Sequence[T]], key: Callable[[T], K], size: int = 1000
    ) -> Iterator[Sequence[T]]:
        """Yield the rows of a long list in batches, none empty. Memory stays bounded, and no session stays open.

        Args:
            query: Called with the entities or the session, the key of the last row so far (None at first) and `size`.
                It returns at most `size` of the following rows, in the order of their keys.
            key: Returns a row's key.
            size: Rows in a batch.

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
        """Check that the database answers, is in order and takes writes. Raises as `run`."""
        self._publish(Mode.READ, self._ping)

    def _observe(self, mode: Mode, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        if self.events is None or not self.events.watches("store"):
            return self._admit(mode, operation, args, kwargs)
        return self._publish(mode, partial(self._admit, mode, operation, args, kwargs))

    def _publish(self, mode: Mode, call: Callable[[], T]) -> T:
        """Call a function, and publish an event about it if anybody watches."""
        begun = time.perf_counter()
        outcome = "ok"
        try:
            return call()
        except BaseException as error:
            outcome = type(error).__name__ if isinstance(error, StoreError) else "undone"
            raise
        finally:
            if self.events is not None:
                fields = {
                    "store": self.declared.name,
                    "kind": "read" if mode is Mode.READ else "write",
                    "outcome": outcome,
                    "seconds": time.perf_counter() - begun,
                    "waited": current_operation.waited,
                }
                self.events.publish(Event("store", self.plugin, fields))

    def _admit(self, mode: Mode, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run an operation once the gate admits it. Never raise a driver's error."""
        deadline = time.monotonic() + self._patience
        self._gate.enter(deadline)
        try:
            if mode is not Mode.READ and self.database.config.read_only:
                raise ReadOnly(f"This host only reads the {self._label} (stores.read_only).")
            try:
                result = self._run_with_retries(mode, deadline, operation, args, kwargs)
            except OutcomeUnknown:
                current_operation.writes += 1
                raise
            if mode is not Mode.READ:
                current_operation.writes += 1
            if self._availability.is_reported or self._availability.failure is not None:
                with suppress(Exception):
                    self._availability.record_success(mode)
            return result
        finally:
            self._gate.end()

    def _run_with_retries(
        self, mode: Mode, deadline: float, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> T:
        """Run an operation, and again after a moment while `_should_retry` says so."""
        availability = self._availability
        back_off = _FIRST_BACK_OFF
        while True:
            session: Session | None = None
            handle = availability.handle if availability.loss is None else None
            try:
                handle = handle or availability.ensure_open(deadline)
                session = handle.sessions.session(mode, deadline)
                return handle.run_operation(session, operation, args, kwargs)
            except Exception as error:  # noqa: BLE001 - anything else passes, see `classify`
                if handle is None and isinstance(error, StoreError):
                    found: StoreError = error  # of `ensure_open`, which has recorded why
                else:
                    found = availability.classify(error, mode, handle)
                if not self._should_retry(found, mode, deadline, session):
                    availability.log_refusal(found)
                    raise found from None if found is error else error
            time.sleep(random.uniform(0, back_off))  # noqa: S311 - keeps two writers from meeting again  # nosec B311
            back_off = min(_LONGEST_BACK_OFF, 2 * back_off)

    def _should_retry(self, found: StoreError, mode: Mode, deadline: float, session: Session | None) -> bool:
        """Return whether a failed operation should be run again before its deadline.

        Yes if others were in its way, or if no connection could be made. If a statement was cancelled: only a read, and
        not by the server's limit. If a connection was lost: only if the server confirmed no write over it.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if isinstance(found, Overran):
            return mode is Mode.READ and self._patience - left < self.database.config.statement_timeout
        if isinstance(found, ConnectionLost) and not isinstance(found, Unreached):
            return session is not None and session.untouched
        return isinstance(found, (Busy, Unreached))

    def _ping(self) -> None:
        self._gate.enter(time.monotonic() + self._patience)
        try:
            handle = self._availability.ensure_open(0.0)
            try:
                handle.sessions.probe(writes=True)
                self._availability.record_success(Mode.PROBE)
            except Exception as error:  # noqa: BLE001 - as above
                found = self._availability.classify(error, Mode.PROBE, handle)
                self._availability.log_refusal(found)
                raise found from None if found is error else error
        finally:
            self._gate.end()
