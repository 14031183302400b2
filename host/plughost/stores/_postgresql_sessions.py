"""Sessions on PostgreSQL, with no round trip that is not needed.

A statement travels with what goes before it: a read with `SET TRANSACTION READ ONLY`, the first one of a transaction
with its `BEGIN`. A single statement is a transaction by itself.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from plughost.stores._connections import Pool
from plughost.stores._errors import ConnectionLost, MisusedStore, OutcomeUnknown
from plughost.stores._failures import translate
from plughost.stores._operation import Waits
from plughost.stores._sessions import Fetch, Mode, Session, refuse_unfit
from plughost.stores._watchdog import Watchdog

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig

T = TypeVar("T")

_READ: Final = "SET TRANSACTION READ ONLY; "
_BEGIN: Final = "BEGIN; "
_ASK_AGAIN: Final = 0.05
_IDLE: Final = 0


class PostgreSQLSessions:
    """Makes the sessions of one open store; see `Sessions`."""

    def __init__(self, open_one: Callable[[], Any], config: StoreConfig, label: str) -> None:
        """Open nothing yet.

        Args:
            open_one: Returns a new connection in autocommit mode.
            config: The settings.
            label: The store, for messages.
        """
        self.label = label
        self.patience = config.patience
        self.pool = Pool(open_one, _fit, label=label, size=config.pool_size, idle=config.pool_idle)
        self.lock_waits = Waits()
        self._open_one = open_one
        self._watchdog = Watchdog(config.patience + config.statement_timeout, label, self.pool.shrink)

    def session(self, mode: Mode, deadline: float) -> PostgreSQLSession:
        """Return a new session; see `Sessions`."""
        if mode is Mode.READ:
            return Reading(self, deadline)
        return Writing(self, deadline) if mode is Mode.WRITE else Single(self, deadline)

    def look(self) -> None:
        """Ask the server for a sign of life; see `Sessions`."""
        session = Reading(self, time.monotonic() + self.patience)
        try:
            session.rows("SELECT 1")
        finally:
            session.commit()

    def take(self, deadline: float) -> Any:
        """Return a connection, which is watched until `give`."""
        connection = self.pool.take(deadline)
        self._watchdog.taken(connection)
        return connection

    def give(self, connection: Any) -> None:
        """Take a connection back."""
        self._watchdog.returned(connection)
        self.pool.give(connection)

    def outcome(self, transaction: int) -> str | None:
        """Return what became of a transaction: `committed`, `aborted`, or `in progress`; None where nobody can tell.

        Args:
            transaction: Its id.
        """
        connection = self._open_one()
        self._watchdog.taken(connection)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT txid_status(%s)", (transaction,))
                told: str | None = cursor.fetchone()[0]
                return told
        finally:
            self._watchdog.returned(connection)
            connection.close()

    def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self.pool.close()
        self._watchdog.end()

    def retire(self) -> bool:
        """Close all connections; see `Sessions`."""
        self.close()
        return not self.pool.used


def _fit(connection: Any) -> bool:
    """Return whether a connection is open, in no transaction, and its server has not hung up meanwhile."""
    if connection.closed or connection.get_transaction_status() != _IDLE:
        return False
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return not poller.poll(0)  # a server has nothing to say on an idle connection but its farewell


class PostgreSQLSession(Session):
    """A session on PostgreSQL; this one only reads, each query for itself."""

    __slots__ = ("_connection", "_deadline", "_ended", "sessions")

    engine_name: Literal["postgresql"] = "postgresql"
    writes = False

    def __init__(self, sessions: PostgreSQLSessions, deadline: float) -> None:
        """Begin with the first statement."""
        self.sessions = sessions
        self._deadline = deadline
        self._connection: Any = None
        self._ended = False

    @property
    def connection(self) -> Any:
        """The connection."""
        if self._connection is None:
            if self._ended:
                message = f"{self.sessions.label}: a session was used after its operation was over."
                raise MisusedStore(message)
            self._connection = self.sessions.take(self._deadline)
        return self._connection

    def _insert(self, sql: str, values: tuple[object, ...]) -> int:
        return self.execute(_first_value, f"{sql} RETURNING id", values)

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run a statement; see `Session`."""
        refuse_unfit(values)
        cursor = self.connection.cursor()
        if values:
            cursor.execute(self.before() + sql.replace("%", "%%").replace("?", "%s"), values)
        else:
            cursor.execute(self.before() + sql)
        return fetch(cursor)

    def before(self) -> str:
        """Return what the next statement has to be preceded by, once."""
        raise NotImplementedError

    def commit(self) -> None:
        """Give the connection back."""
        connection, self._connection = self._connection, None
        self._ended = True
        if connection is not None:
            self.sessions.give(connection)

    def undo(self) -> None:
        """Give the connection back; see `Session`."""
        PostgreSQLSession.commit(self)

    def _limit(self) -> str:
        """Return what makes the server wait for locks no longer than the operation may still wait."""
        left = self._deadline - time.monotonic()
        if left > 0.99 * self.sessions.patience:
            return ""
        return f"SET LOCAL lock_timeout = {max(1, int(left * 1000))}; "


class Reading(PostgreSQLSession):
    """A session that only reads: each query sees what is committed by then."""

    __slots__ = ()

    def before(self) -> str:
        """Return what makes the server refuse to write."""
        return _READ


class Writing(PostgreSQLSession):
    """A transaction, which begins with its first statement."""

    __slots__ = ("_begun", "_statements")
    writes = True

    def __init__(self, sessions: PostgreSQLSessions, deadline: float) -> None:
        """Begin with the first statement."""
        super().__init__(sessions, deadline)
        self._begun = False
        self._statements = 0

    @property
    def untouched(self) -> bool:
        """Whether no statement of it was answered before another was sent; see `Session`."""
        return self._statements <= 1

    def before(self) -> str:
        """Return what begins the transaction, the first time."""
        self._statements += 1
        if self._begun:
            return ""
        self._begun = True
        return _BEGIN + self._limit()

    def commit(self) -> None:
        """Commit; where the connection is lost meanwhile, ask over another one whether that was done."""
        connection = self._connection
        if connection is None or not self._begun:
            super().commit()
            return
        transaction: int | None = None
        try:
            cursor = connection.cursor()
            cursor.execute("SELECT txid_current_if_assigned()")  # None where nothing was written
            (transaction,) = cursor.fetchone()
            cursor.execute("COMMIT")
        except Exception as error:
            self.undo()
            lost = isinstance(translate(error, self.sessions.label), ConnectionLost)
            if transaction is None or not lost:
                raise
            self._find_out(transaction, error)
        else:
            super().commit()

    def undo(self) -> None:
        """Roll back; see `Session`."""
        self.restart()
        super().undo()

    def restart(self) -> None:
        """Undo what was written so far, and go on."""
        connection, begun, self._begun = self._connection, self._begun, False
        if connection is not None and begun:
            with suppress(Exception):  # on a broken connection there is nothing to undo: the server did that
                connection.cursor().execute("ROLLBACK")

    def _find_out(self, transaction: int, error: Exception) -> None:
        """Return if the transaction was committed.

        Raises:
            ConnectionLost: It was undone.
            OutcomeUnknown: Nobody told within the time that operations wait.
        """
        give_up = time.monotonic() + self.sessions.patience
        label = self.sessions.label
        while True:
            try:
                told = self.sessions.outcome(transaction)
            except Exception:  # noqa: BLE001 - whatever it is, there is no answer yet
                told = "in progress"
            if told == "committed":
                return
            if told == "aborted":
                message = f"{label}: the connection was lost before the commit, and nothing was kept: {error}"
                raise ConnectionLost(message) from error
            if told is None or time.monotonic() > give_up:
                message = f"{label}: the connection was lost at the commit, which may have been done: {error}"
                raise OutcomeUnknown(message) from error
            time.sleep(_ASK_AGAIN)


class Single(PostgreSQLSession):
    """A session of one statement, which is a transaction."""

    __slots__ = ()
    writes = True

    def before(self) -> str:
        """Return what the statement has to be preceded by."""
        return self._limit()

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        """Run the statement; see `Session`."""
        if self._ended:
            message = f"{self.sessions.label}: an operation of `single` is one statement; use `run` for several."
            raise MisusedStore(message)
        try:
            return super().execute(fetch, sql, values)
        except Exception as error:
            lost = isinstance(translate(error, self.sessions.label), ConnectionLost)
            # An InterfaceError is psycopg2's refusal to send anything over a closed connection.
            if lost and self._connection is not None and type(error).__name__ != "InterfaceError":
                message = f"{self.sessions.label}: the connection was lost, and the write may have been done: {error}"
                raise OutcomeUnknown(message) from error
            raise
        finally:
            self.commit()


def _first_value(cursor: Any) -> int:
    value: int = cursor.fetchone()[0]
    return value
