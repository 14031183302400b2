"""A store as a plugin has it: operations that read and operations that write."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar

from pony.orm import core

from plughost.stores.errors import Busy, ConnectionLost, MisusedStore, StoreError, Unavailable
from plughost.stores.failures import translate
from plughost.stores.opening import Opened, open_store
from plughost.stores.sessions import refuse_nesting

if TYPE_CHECKING:
    import structlog

    from plughost.declarations import Store
    from plughost.events import Events
    from plughost.stores.engines import Engine

E = TypeVar("E")
T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")

_PONY: Final = (core.Entity, core.Query, core.QueryResult, core.SetInstance, core.Multiset, GeneratorType)
_FIRST_BACK_OFF: Final = 0.005
_LONGEST_BACK_OFF: Final = 0.25


class _Watch(Generic[T]):
    """An operation, and how long it waited until it was called for the last time."""

    def __init__(self, operation: Callable[..., T]) -> None:
        self._operation = operation
        self._begun = self._called = time.perf_counter()
        self.__qualname__ = getattr(operation, "__qualname__", repr(operation))

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        self._called = time.perf_counter()
        return self._operation(*args, **kwargs)

    def figures(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self._begun, "waited": self._called - self._begun}


class OpenStore(Generic[E]):
    """A store, open or about to be: `E` is what its factory of entities returns.

    An operation is a function whose first argument are the entities. It runs in one session and returns plain
    values: nothing of Pony may leave it. It does nothing else of note, as it may be run again. One thread runs one
    operation at a time, of whichever store.

    An operation finds the database unreachable with `Unavailable`; further ones fail at once until one, after
    `StoreConfig.pause` seconds, finds it back. That goes for the opening, too, so that a host starts without it.

    Attributes:
        declared: The declaration.
        plugin: The plugin that declared it.
        engine: Its database.
        events: Told of every operation while somebody watches.
    """

    def __init__(self, declared: Store, plugin: str, engine: Engine, logger: structlog.stdlib.BoundLogger) -> None:
        """Remember what to open; see `open`."""
        self.declared = declared
        self.plugin = plugin
        self.engine = engine
        self.events: Events | None = None
        self._label = f"store {declared.name}"
        self._opened: Opened | None = None
        self._closed = False
        self._trouble: StoreError | None = None
        self._retry_at = 0.0
        self._opening = threading.Lock()
        self._logger = logger.bind(store=declared.name, plugin=plugin)

    @property
    def name(self) -> str:
        """The store's name."""
        return self.declared.name

    @property
    def engine_name(self) -> Literal["sqlite", "postgresql"]:
        """The engine's name, for the rare operation that needs SQL of its own for each."""
        return "sqlite" if self.engine.config.path else "postgresql"

    @property
    def state(self) -> Literal["open", "unavailable", "closed"]:
        """Whether it is open, waits for its database to be reachable (again), or is closed for good."""
        if self._closed:
            return "closed"
        return "open" if self._opened is not None and self._trouble is None else "unavailable"

    @property
    def schema(self) -> int | None:
        """The number of its schema; None before it was opened."""
        return self._opened.schema if self._opened else None

    def open(self) -> None:
        """Migrate and open the store now, rather than with the first operation.

        Raises:
            SetupError: Somebody has to mend something first; the message says what.
            Unavailable: The database cannot be reached. Later operations try again.
        """
        refuse_nesting(self._label)
        self._ready()

    def read(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that only reads; on SQLite it waits for no writer.

        Each of its queries sees what is committed by then.

        Args:
            operation: Called with the entities, then `args` and `kwargs`.
            *args: What it needs.
            **kwargs: What it needs.

        Returns:
            What it returned.

        Raises:
            Busy: The database was too long in answering.
            Unavailable: The database cannot be reached.
            MisusedStore: It breaks a rule of this class.
            StoreError: The database refused it.
        """
        return self._operate(False, operation, args, kwargs)

    def run(self, operation: Callable[Concatenate[E, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation in one transaction, which is committed if it returns and undone if it raises.

        Args:
            operation: Called with the entities, then `args` and `kwargs`; again from the start, after a moment,
                where others were in its way.
            *args: What it needs.
            **kwargs: What it needs.

        Returns:
            What it returned, once it is committed.

        Raises:
            Duplicate: A unique value is there already. It shows when Pony flushes, so catch it around `run`.
            Busy: Others held what it needs for longer than `StoreConfig.patience` seconds.
            Unavailable: The database cannot be reached or written.
            MisusedStore: It breaks a rule of this class.
            StoreError: The database refused it.
        """
        return self._operate(True, operation, args, kwargs)

    def batches(
        self, query: Callable[[E, K | None, int], Sequence[T]], key: Callable[[T], K], size: int = 1000
    ) -> Iterator[Sequence[T]]:
        """Yield all rows of a long list in batches, so that memory stays bounded and no session stays open.

        Args:
            query: Called with the entities, the key of the last row so far (None at first) and `size`; returns at
                most that many of the rows that follow, in the order of their keys.
            key: Returns a row's key.
            size: Rows in a batch.

        Yields:
            The batches, none of them empty.

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
        """Ask the database for a sign of life.

        Raises:
            StoreError: As `read`.
        """
        database = self._ready().database
        self._operate(False, lambda _entities: database.select("1"), (), {})

    def close(self) -> None:
        """Close the connections for good; operations that still run keep theirs until they are done."""
        with self._opening:
            self._closed = True
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _operate(self, writes: bool, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run an operation, and tell of it where somebody watches."""
        if self.events is None or not self.events.watched:
            return self._attempt(writes, operation, args, kwargs)
        watch = _Watch(operation)
        outcome = "ok"
        try:
            return self._attempt(writes, watch, args, kwargs)
        except StoreError as error:
            outcome = type(error).__name__
            raise
        except Exception:
            outcome = "undone"
            raise
        finally:
            kind = "write" if writes else "read"
            self.events.emit("store", self.plugin, store=self.name, kind=kind, outcome=outcome, **watch.figures())

    def _attempt(self, writes: bool, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        """Run an operation, again where that is safe and may help, and raise nothing of Pony's."""
        refuse_nesting(self._label)
        give_up = back_off = 0.0
        lost = False
        while True:
            try:
                opened = self._ready()
                with opened.writing if writes else opened.reading:
                    result = operation(opened.entities, *args, **kwargs)
                    self._refuse_leak(operation, result)
                return result
            except Exception as error:
                found = translate(error, self._label)
                if found is None:
                    raise
                if isinstance(found, ConnectionLost):
                    self._lose(found)
                give_up = give_up or time.monotonic() + self.engine.config.patience
                # A read does no harm when it is done again; what a write has done by then nobody may know.
                again = not writes and not lost if isinstance(found, ConnectionLost) else isinstance(found, Busy)
                if not again or time.monotonic() >= give_up:
                    if found is error:
                        raise
                    raise found from error
                lost = isinstance(found, ConnectionLost)
            back_off = min(_LONGEST_BACK_OFF, 2 * back_off or _FIRST_BACK_OFF)
            time.sleep(random.uniform(0, back_off))  # noqa: S311 - keeps two writers from meeting again

    def _refuse_leak(self, operation: Callable[..., object], result: object) -> None:
        first = result[0] if isinstance(result, (list, tuple)) and result else result
        if isinstance(result, _PONY) or isinstance(first, _PONY):
            message = (
                f"{operation.__qualname__} returned a {type(first).__name__} out of the {self._label}, which is of no "
                "use once the session is over: return plain values, such as a list of tuples."
            )
            raise MisusedStore(message)

    def _ready(self) -> Opened:
        """Return the open store, opening or finding it again where need be; fail at once where that just failed."""
        opened = self._opened
        if opened is not None and self._trouble is None:
            return opened
        if self._trouble is None:
            self._opening.acquire()
        elif not self._opening.acquire(blocking=False):
            raise self._trouble_again()
        try:
            return self._recover()
        finally:
            self._opening.release()

    def _recover(self) -> Opened:
        """Open the store, or see whether it answers again; call it with the lock held."""
        if self._closed:
            message = f"The {self._label} is closed."
            raise StoreError(message)
        if self._trouble is None and self._opened is not None:
            return self._opened
        if time.monotonic() < self._retry_at:
            raise self._trouble_again()
        try:
            if self._opened is None:
                self._opened = open_store(self.declared, self.plugin, self.engine, self._logger)
            else:
                connection, _ = self._opened.connections.connect()
                self._opened.connections.release(connection)
        except Exception as error:
            found = translate(error, self._label)
            if found is None:
                raise
            self._note(found)
            self._retry_at = time.monotonic() + self.engine.config.pause
            if found is error:
                raise self._trouble_again() from error.__cause__
            raise self._trouble_again() from error
        if self._trouble is not None:
            self._logger.info("the store is back")
        self._trouble = None
        return self._opened

    def _lose(self, error: ConnectionLost) -> None:
        """Take note that a connection broke: whoever comes next sees first whether the database answers at all."""
        opened = self._opened
        if opened is not None:
            opened.connections.disconnect()
        self._note(error)

    def _note(self, error: StoreError) -> None:
        if self._trouble is None:
            self._logger.warning("the store is not available", reason=str(error))
        # Not ConnectionLost, which would stand for yet another connection that broke.
        self._trouble = Unavailable(str(error)) if isinstance(error, Unavailable) else error

    def _trouble_again(self) -> StoreError:
        """Return the trouble as an exception of its own, since several threads may raise it."""
        trouble = self._trouble
        return type(trouble)(str(trouble)) if trouble is not None else Unavailable(f"The {self._label} was just lost.")
