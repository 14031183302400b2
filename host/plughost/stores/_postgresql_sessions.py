"""Sessions on PostgreSQL, with no round trip that is not needed.

A statement travels with what goes before it: a read with `SET TRANSACTION READ ONLY`, the first one of a transaction
with its `BEGIN`. A single statement is a transaction by itself.
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

from plughost._queries import quote
from plughost.stores._connections import Pool, Waits
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
from plughost.stores._sessions import Fetch, Mode, Session, Sessions, refuse_unfit

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig

T = TypeVar("T")

_ASK_AGAIN: Final = 0.05
_LONGEST_LOOK: Final = 1.0
_IDLE: Final = 0
_SPACES: Final = """
SELECT DISTINCT spcname
FROM pg_class
JOIN pg_database ON datname = current_database()
JOIN pg_tablespace ON pg_tablespace.oid = coalesce(nullif(reltablespace, 0), dattablespace)
LEFT JOIN pg_index ON indexrelid = pg_class.oid
WHERE coalesce(indrelid, pg_class.oid) IN (SELECT to_regclass(quote_ident(name)) FROM unnest(?::text[]) AS name)
"""


class PostgreSQLSessions(Sessions):
    """Makes the sessions of one open store, and cuts connections that are in use for too long.

    TCP tells of a server that is gone, and the server itself ends statements that take too long. One that is stopped
    in its tracks does neither: its kernel answers for it, and psycopg2 knows no time-out of its own.
    """

    def __init__(
        self, connect: Callable[[int], Any], prepare: Callable[[Any], None], config: StoreConfig, label: str
    ) -> None:
        """Open nothing yet.

        `connect` returns a new connection in autocommit mode, in so many seconds at most, and `prepare` makes it fit.
        """
        self.label = label
        self.patience = config.patience
        size, idle = config.pool_size, config.pool_idle
        self.pool = Pool(self._open, _clean, alive=_alive, label=label, size=size, idle=idle)
        self.lock_waits = Waits()
        self._connect, self._prepare = connect, prepare
        self._limit, self._only_read = config.statement_timeout, config.read_only
        self._used: dict[int, tuple[Any, float]] = {}
        self._claims = False
        self._watching = threading.Lock()  # held by the thread that watches, once there is one
        self._ended = threading.Event()

    def session(self, mode: Mode, deadline: float) -> PostgreSQLSession:
        if mode is Mode.READ:
            return Reading(self, deadline)
        return Writing(self, deadline) if mode is Mode.WRITE else Single(self, deadline)

    def look(self, *, writes: bool = False, deadline: float | None = None) -> None:
        read_only, _ = self._ask(deadline, "SHOW transaction_read_only", looks=True)
        if writes and read_only == "on" and not self._only_read:  # as on a standby, or where somebody has set it so
            raise Unavailable(f"The database of the {self.label} is read-only.")

    def take(self, deadline: float, *, looks: bool = False) -> Any:
        """Return a connection, which is watched until `give`.

        Who only looks waits for no other operation, since those who use all connections may wait for a lock.
        """
        connection = self.pool.take(deadline, beyond=looks)
        until = time.monotonic() + self.patience if looks else deadline + self._limit
        self._cut_at(connection, until)
        return connection

    def give(self, connection: Any) -> None:
        """Take a connection back."""
        self._used.pop(id(connection), None)
        self.pool.give(connection)

    def claim(self) -> None:
        # Each connection holds the claim, the pool keeps the last one, and where all were ended `_watch` opens another.
        self.give(self.take(time.monotonic() + self.patience))
        self._claims = True

    def let_go(self) -> None:
        self._claims = False
        super().let_go()

    def outcome(self, transaction: int, life: object, deadline: float) -> str | None:
        """Return what became of a transaction: committed, aborted, or in progress; None where nobody can tell.

        A server that crashed may give the number of a transaction that it lost to another one, in its next `life`.
        """
        told, asked_in = self._ask(deadline, "SELECT txid_status(%s)", transaction, looks=True)
        return None if told == "committed" and asked_in != life else told

    def _ask(self, deadline: float | None, sql: str, *values: object, looks: bool = False) -> tuple[str | None, object]:
        """Return the one value that a query finds, and the life of the server that was asked."""
        connection = self.take(time.monotonic() + self.patience if deadline is None else deadline, looks=looks)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, values)
                return cursor.fetchone()[0], connection.life
        finally:
            self.give(connection)

    def places(self, session: Session, tables: Sequence[str]) -> Iterable[str]:
        return ("", *(f"TABLESPACE {quote(name)}" for (name,) in session.rows(_SPACES, list(tables))))

    def refused(self) -> None:
        self.pool.disconnect()  # each keeps the default that it was opened with, which may have been to read only

    def close(self) -> bool:
        self.pool.close()
        self._ended.set()
        return not self.pool.turns.used

    def _open(self, deadline: float) -> Any:
        """Return a new connection; one that is not made by the deadline is given up.

        Raises:
            Refused: The server takes no further one at the moment.
            Unreached: None can be made, or the server takes not a single one.
        """
        begun = time.monotonic()
        left = deadline - begun
        seconds = max(1, int(left if left > 0 else self.patience))  # libpq counts whole ones
        try:
            connection = self._connect(seconds)
        except Refused as error:
            if self.pool.open > 1:  # this one, and others that can be waited for
                raise
            raise Unreached(str(error)) from error
        try:
            self._cut_at(connection, begun + seconds)
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        finally:
            self._used.pop(id(connection), None)
        return connection

    def _cut_at(self, connection: Any, deadline: float) -> None:
        """Have a connection watched until it is not in use any more."""
        self._used[id(connection)] = connection, deadline
        if not self._watching.locked() and self._watching.acquire(blocking=False):
            try:
                threading.Thread(target=self._watch, name=f"plughost-watch-{self.label}", daemon=True).start()
            except RuntimeError:  # the system allows no more: the next connection tries again
                self._watching.release()

    def _watch(self) -> None:
        keeper: threading.Thread | None = None
        while not self._ended.wait(min(_LONGEST_LOOK, (self.patience + self._limit) / 4)):
            now = time.monotonic()
            for connection, deadline in list(self._used.values()):
                if now >= deadline:
                    _cut(connection)
            self.pool.shrink(now)
            if self._claims and not self._used and not (keeper and keeper.is_alive()):
                # In a thread of its own: its connection, too, is cut by this one.
                keeper = threading.Thread(target=self._keep_claim, args=(now,), daemon=True)
                with suppress(RuntimeError):  # the system allows no more at the moment
                    keeper.start()

    def _keep_claim(self, now: float) -> None:
        """See that there is a connection, which holds the claim."""
        with suppress(Exception):  # the server is away, or the store is purged
            self.pool.give(self.pool.take(now))
        if not self._claims:  # it was let go of meanwhile
            self.pool.disconnect()


def _cut(connection: Any) -> None:
    """Shut a connection's socket down, so that whoever waits for its server finds it closed."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as own:  # it may have been closed
        own.shutdown(socket.SHUT_RDWR)


def _clean(connection: Any) -> bool:
    """Return whether a connection is open, and in no transaction."""
    return not connection.closed and connection.get_transaction_status() == _IDLE


def _alive(connection: Any) -> bool:
    """Return whether the server of an idle connection has not hung up meanwhile."""
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    return not poller.poll(0)  # a server has nothing to say on an idle connection but its farewell


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
        refuse_unfit(values)
        connection = self._connection or self.connection
        cursor = connection.cursor()
        if values:
            sql = sql.replace("%", "%%").replace("?", "%s")
        self._send(cursor, self.before() + sql, values or None)
        return fetch(cursor)

    def _send(self, cursor: Any, sql: str, values: tuple[object, ...] | None = None) -> None:
        """Run a statement."""
        begun = time.monotonic()
        try:
            cursor.execute(sql, values)
        except Exception as error:
            if getattr(error, "pgcode", None) in LOCKED:  # the server tells of no wait that was not in vain
                self.sessions.lock_waits.add(time.monotonic() - begun)
            raise

    def _limit(self) -> str:
        """Return what makes the server wait for locks no longer than the operation may still wait."""
        left = self._deadline - time.monotonic()
        return "" if left > 0.99 * self.sessions.patience else f"SET LOCAL lock_timeout = {max(1, int(left * 1000))}; "

    def _is_lost(self, error: Exception) -> bool:
        return isinstance(translate(error, self.sessions.label), ConnectionLost)


class Reading(PostgreSQLSession):
    """A session that only reads: each query sees what is committed by then."""

    __slots__ = ()
    writes = False

    def before(self) -> str:
        return "SET TRANSACTION READ ONLY; " + self._limit()


class Writing(PostgreSQLSession):
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
        return "BEGIN; " + self._limit()

    def commit(self) -> None:
        """Commit; where the connection is lost meanwhile, ask over another one whether that was done."""
        connection = self._connection
        transaction: int | None = None
        try:
            if connection is not None and self._begun:
                cursor = connection.cursor()
                cursor.execute("SELECT txid_current_if_assigned()")  # None where nothing was written
                (transaction,) = cursor.fetchone()
                self._send(cursor, "COMMIT")
        except Exception as error:
            self.undo()
            if connection is None or transaction is None or not self._is_lost(error):
                raise
            self._find_out(transaction, connection.life, error)
        else:
            super().commit()

    def undo(self) -> None:
        self.restart()
        super().undo()

    def restart(self) -> None:
        connection, begun, self._begun = self._connection, self._begun, False
        if connection is not None and begun:
            with suppress(Exception):  # on a broken connection there is nothing to undo: the server did that
                connection.cursor().execute("ROLLBACK")

    def _find_out(self, transaction: int, life: object, error: Exception) -> None:
        """Return if the transaction was committed; `OutcomeUnknown` if nobody tells for as long as operations wait."""
        give_up = time.monotonic() + self.sessions.patience
        label = self.sessions.label
        while True:
            told: str | None = "in progress"  # whatever goes wrong, there is no answer yet
            with suppress(Exception):
                told = self.sessions.outcome(transaction, life, give_up)
            if told == "committed":
                return
            if told == "aborted":
                message = f"{label}: the connection was lost before the commit, and nothing was kept: {one_line(error)}"
                raise ConnectionLost(message) from error
            if told is None or time.monotonic() > give_up:
                message = f"{label}: the connection was lost at the commit, which may have been done: {one_line(error)}"
                raise OutcomeUnknown(message) from error
            time.sleep(_ASK_AGAIN)


class Single(PostgreSQLSession):
    """A session of one statement, which is a transaction."""

    __slots__ = ()

    before = PostgreSQLSession._limit  # noqa: SLF001 - of its own class

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        if self.ended:
            self._refuse_second()
        try:
            self._connection = self.sessions.take(self._deadline)
            return super().execute(fetch, sql, values)
        except Exception as error:
            # An InterfaceError is psycopg2's refusal to send anything over a closed connection.
            if self._connection is not None and self._is_lost(error) and type(error).__name__ != "InterfaceError":
                message = f"{self.sessions.label}: the connection was lost, and the write may have been done: "
                raise OutcomeUnknown(message + one_line(error)) from error
            raise
        finally:
            self.commit()
