"""Sessions on PostgreSQL, without needless round trips.

A statement carries what must precede it: a read `SET TRANSACTION READ ONLY`, the first one of a transaction `BEGIN`.
A single statement is a transaction by itself.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from plughost.stores._errors import (
    LOCKED,
    ConnectionLost,
    OutcomeUnknown,
    Refused,
    Unavailable,
    Unreached,
    one_line,
    translate,
)
from plughost.stores._pool import Pool, WaitStatistics
from plughost.stores._sessions import Fetch, Mode, Session, check_values, quote

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig

T = TypeVar("T")

_POLL_INTERVAL: Final = 0.05
_WATCH_INTERVAL: Final = 1.0
_IDLE: Final = 0
_TABLESPACES: Final = """
SELECT DISTINCT spcname
FROM pg_class
JOIN pg_database ON datname = current_database()
JOIN pg_tablespace ON pg_tablespace.oid = coalesce(nullif(reltablespace, 0), dattablespace)
LEFT JOIN pg_index ON indexrelid = pg_class.oid
WHERE coalesce(indrelid, pg_class.oid) IN (SELECT to_regclass(quote_ident(name)) FROM unnest(?::text[]) AS name)
"""


class PostgreSQLSessions:
    """Makes the sessions of one open store, and shuts down connections that are in use for too long.

    TCP notices a server that is gone, and the server itself ends statements that take too long. A suspended server
    does neither: its kernel still answers, and psycopg2 has no time-out of its own.
    """

    def __init__(
        self, connect: Callable[[int], Any], prepare: Callable[[Any], None], config: StoreConfig, label: str
    ) -> None:
        """Open nothing yet; `connect` gets a time limit in seconds, and `prepare` readies a new connection for use."""
        self.label = label
        self.patience = config.patience
        size, idle = config.pool_size, config.pool_idle
        self.pool = Pool(self._open, _is_clean, is_alive=_is_alive, label=label, size=size, idle=idle)
        self.lock_waits = WaitStatistics()
        self._connect, self._prepare = connect, prepare
        self._statement_timeout, self._is_read_only = config.statement_timeout, config.read_only
        self._watched: dict[int, tuple[Any, float]] = {}
        self._holds_claim = False
        self._watcher_lock = threading.Lock()  # held by the watcher thread once it runs
        self._closed = threading.Event()

    def session(self, mode: Mode, deadline: float) -> PostgreSQLSession:
        if mode is Mode.READ:
            return ReadSession(self, deadline)
        return WriteSession(self, deadline) if mode is Mode.WRITE else SingleSession(self, deadline)

    def probe(self, *, writes: bool = False, deadline: float | None = None) -> None:
        read_only, _ = self._query_value(deadline, "SHOW transaction_read_only", is_probe=True)
        if writes and read_only == "on" and not self._is_read_only:  # as on a standby, or by a setting
            raise Unavailable(f"The database of the {self.label} is read-only.")

    def acquire(self, deadline: float, *, is_probe: bool = False) -> Any:
        """Return a connection, which is watched until `release`.

        A probe waits for no operation, since those that use all connections may wait for a lock.
        """
        connection = self.pool.acquire(deadline, over_limit=is_probe)
        until = time.monotonic() + self.patience if is_probe else deadline + self._statement_timeout
        self._watch(connection, until)
        return connection

    def release(self, connection: Any) -> None:
        """Take a connection back."""
        self._watched.pop(id(connection), None)
        self.pool.release(connection)

    def claim(self) -> None:
        # Each connection holds the claim. The pool keeps the last one; if all were ended, the watcher opens another.
        self.release(self.acquire(time.monotonic() + self.patience))
        self._holds_claim = True

    def release_claim(self) -> None:
        self._holds_claim = False
        self.pool.disconnect()

    def transaction_status(self, transaction: int, incarnation: object, deadline: float) -> str | None:
        """Return the status of a transaction: committed, aborted or in progress; None if nobody can tell.

        After a crash, the server's next `incarnation` may give the number of a lost transaction to another one.
        """
        status, answered_by = self._query_value(deadline, "SELECT txid_status(%s)", transaction, is_probe=True)
        return None if status == "committed" and answered_by != incarnation else status

    def _query_value(
        self, deadline: float | None, sql: str, *values: object, is_probe: bool = False
    ) -> tuple[str | None, object]:
        """Return the one value that a query finds, and the incarnation of the server that answered."""
        connection = self.acquire(time.monotonic() + self.patience if deadline is None else deadline, is_probe=is_probe)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, values)
                return cursor.fetchone()[0], connection.incarnation
        finally:
            self.release(connection)

    def tablespace_clauses(self, session: Session, tables: Sequence[str]) -> Iterable[str]:
        return ("", *(f"TABLESPACE {quote(name)}" for (name,) in session.rows(_TABLESPACES, list(tables))))

    def exhausted_table(self) -> None:
        """Return None: PostgreSQL has an error of its own for it."""

    def close(self) -> bool:
        self.pool.close()
        self._closed.set()
        return not self.pool.slots.in_use

    def _open(self, deadline: float) -> Any:
        """Return a new connection; give up at the deadline.

        Raises:
            Refused: The server takes no further connection at the moment.
            Unreached: It can't be reached, or takes not a single connection.
        """
        begun = time.monotonic()
        left = deadline - begun
        seconds = max(1, int(left if left > 0 else self.patience))  # libpq counts whole ones
        try:
            connection = self._connect(seconds)
        except Refused as error:
            if self.pool.open > 1:  # this one, and others that may become free
                raise
            raise Unreached(str(error)) from error
        try:
            self._watch(connection, begun + seconds)
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        finally:
            self._watched.pop(id(connection), None)
        return connection

    def _watch(self, connection: Any, deadline: float) -> None:
        """Watch a connection that is in use, and shut it down at the deadline."""
        self._watched[id(connection)] = connection, deadline
        if not self._watcher_lock.locked() and self._watcher_lock.acquire(blocking=False):
            try:
                threading.Thread(target=self._run_watcher, name=f"plughost-watch-{self.label}", daemon=True).start()
            except RuntimeError:  # no thread can be started: the next connection tries again
                self._watcher_lock.release()

    def _run_watcher(self) -> None:
        restorer: threading.Thread | None = None
        while not self._closed.wait(min(_WATCH_INTERVAL, (self.patience + self._statement_timeout) / 4)):
            now = time.monotonic()
            for connection, deadline in list(self._watched.values()):
                if now >= deadline:
                    _shut_down(connection)
            self.pool.shrink(now)
            if self._holds_claim and not self._watched and not (restorer and restorer.is_alive()):
                # In a thread of its own, since this one also watches the new connection.
                restorer = threading.Thread(target=self._restore_claim, args=(now,), daemon=True)
                with suppress(RuntimeError):  # no thread can be started at the moment
                    restorer.start()

    def _restore_claim(self, now: float) -> None:
        """Open a connection to hold the claim, if there is none."""
        with suppress(Exception):  # the server is away, or the store is being purged
            self.pool.release(self.pool.acquire(now))
        if not self._holds_claim:  # it was released meanwhile
            self.pool.disconnect()


def _shut_down(connection: Any) -> None:
    """Shut down a connection's socket, so that a thread that waits for the server finds it closed."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as own:  # it may have been closed
        own.shutdown(socket.SHUT_RDWR)


def _is_clean(connection: Any) -> bool:
    """Return whether a connection is open, and in no transaction."""
    return not connection.closed and connection.get_transaction_status() == _IDLE


def _is_alive(connection: Any) -> bool:
    """Return whether the server has not closed an idle connection meanwhile."""
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return not poller.poll(0)  # on an idle connection, a server sends nothing but its end


class PostgreSQLSession(Session):
    """A session on PostgreSQL."""

    __slots__ = ()

    dialect: Literal["postgresql"] = "postgresql"
    sessions: PostgreSQLSessions
    _returning = " RETURNING id"

    @staticmethod
    def _new_id(cursor: Any) -> int:
        value: int = cursor.fetchone()[0]
        return value

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        check_values(values)
        connection = self._connection or self.connection
        cursor = connection.cursor()
        if values:
            sql = sql.replace("%", "%%").replace("?", "%s")
        self._send(cursor, self.before() + sql, values or None)
        return fetch(cursor)

    def _send(self, cursor: Any, sql: str, values: tuple[object, ...] | None = None) -> None:
        """Run a statement, and count the wait if a lock was not to be had; successful waits are not reported."""
        begun = time.monotonic()
        try:
            cursor.execute(sql, values)
        except Exception as error:
            if getattr(error, "pgcode", None) in LOCKED:
                self.sessions.lock_waits.add(time.monotonic() - begun)
            raise

    def _lock_timeout(self) -> str:
        """Return a statement that limits waits for locks to the remaining time; empty if the default will do."""
        left = self._deadline - time.monotonic()
        return "" if left > 0.99 * self.sessions.patience else f"SET LOCAL lock_timeout = {max(1, int(left * 1000))}; "

    def _is_lost(self, error: Exception) -> bool:
        return isinstance(translate(error, self.sessions.label), ConnectionLost)


class ReadSession(PostgreSQLSession):
    """A session that only reads: each query sees what is committed by then."""

    __slots__ = ()
    writes = False

    def before(self) -> str:
        return "SET TRANSACTION READ ONLY; " + self._lock_timeout()


class WriteSession(PostgreSQLSession):
    """A transaction, which begins with its first statement."""

    __slots__ = ("_begun", "_statements")

    def __init__(self, sessions: PostgreSQLSessions, deadline: float) -> None:
        super().__init__(sessions, deadline)
        self._begun = False
        self._statements = 0

    @property
    def untouched(self) -> bool:
        return self._statements <= 1

    def before(self) -> str:
        self._statements += 1
        if self._begun:
            return ""
        self._begun = True
        return "BEGIN; " + self._lock_timeout()

    def commit(self) -> None:
        """Commit; if the connection is lost meanwhile, ask over another one whether the commit was done."""
        connection = self._connection
        transaction: int | None = None
        try:
            if connection is not None and self._begun:
                cursor = connection.cursor()
                cursor.execute("SELECT txid_current_if_assigned()")  # None if nothing was written
                (transaction,) = cursor.fetchone()
                self._send(cursor, "COMMIT")
        except Exception as error:
            self.undo()
            if connection is None or transaction is None or not self._is_lost(error):
                raise
            self._resolve_outcome(transaction, connection.incarnation, error)
        else:
            super().commit()

    def undo(self) -> None:
        self.restart()
        super().undo()

    def restart(self) -> None:
        connection, begun, self._begun = self._connection, self._begun, False
        if connection is not None and begun:
            with suppress(Exception):  # if the connection is broken, the server rolls back
                connection.cursor().execute("ROLLBACK")

    def _resolve_outcome(self, transaction: int, incarnation: object, error: Exception) -> None:
        """Return if the transaction was committed; `OutcomeUnknown` if nobody can tell within `patience` seconds."""
        deadline = time.monotonic() + self.sessions.patience
        label = self.sessions.label
        while True:
            status: str | None = "in progress"  # assumed if the question fails
            with suppress(Exception):
                status = self.sessions.transaction_status(transaction, incarnation, deadline)
            if status == "committed":
                return
            if status == "aborted":
                message = f"{label}: the connection was lost before the commit, and nothing was kept: {one_line(error)}"
                raise ConnectionLost(message) from error
            if status is None or time.monotonic() > deadline:
                message = f"{label}: the connection was lost at the commit, which may have been done: {one_line(error)}"
                raise OutcomeUnknown(message) from error
            time.sleep(_POLL_INTERVAL)


class SingleSession(PostgreSQLSession):
    """A session of one statement, which is a transaction by itself."""

    __slots__ = ()

    before = PostgreSQLSession._lock_timeout  # noqa: SLF001 - of its own class

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        if self.ended:
            self._refuse_second()
        try:
            self._connection = self.sessions.acquire(self._deadline)
            return super().execute(fetch, sql, values)
        except Exception as error:
            # psycopg2 raises InterfaceError before it sends anything over a closed connection.
            if self._connection is not None and self._is_lost(error) and type(error).__name__ != "InterfaceError":
                message = f"{self.sessions.label}: the connection was lost, and the write may have been done: "
                raise OutcomeUnknown(message + one_line(error)) from error
            raise
        finally:
            self.commit()
