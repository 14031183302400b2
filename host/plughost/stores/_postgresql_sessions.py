"""Sessions on PostgreSQL, without needless round trips.

A statement carries what must precede it: a read `SET TRANSACTION READ ONLY`, the first one of a transaction `BEGIN`,
on a line of its own: PostgreSQL's messages quote only the line with the mistake.
A single statement is a transaction by itself.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, Literal, TypeVar

from plughost.stores._errors import (
    CUT_OFF,
    LOCKED,
    ConnectionLost,
    Damaged,
    OutcomeUnknown,
    SetupError,
    StoreError,
    one_line,
    translate,
)
from plughost.stores._sessions import TABLE, BaseAdminSession, Fetch, Session, check_values, quote

T = TypeVar("T")

IDLE: Final = 0
"""The status of a connection in no transaction."""
_POLL_INTERVAL: Final = 0.05
_IDLE_SESSIONS_END: Final = 140000  # from this version on, `idle_session_timeout` exists
_SHARED_LOCK: Final = "plughost migrations"
_MARK: Final = "plughost.connected"
IS_UNSHARED: Final = f"coalesce(current_setting('{_MARK}', true), '') = ''"
"""Whether a session of the server was not given to a connection of a host yet, in SQL. See `begin_session`."""
_SETTINGS: Final = {
    _MARK: "on",
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "extra_float_digits": 1,  # else numbers are rounded
    # A host whose machine vanished loses its claims within a minute.
    "tcp_keepalives_idle": 30,
    "tcp_keepalives_interval": 10,
    "tcp_keepalives_count": 3,
}
_HAS_PRIVILEGES: Final = """
SELECT coalesce(bool_and(has_table_privilege(to_regclass(?), privilege)), true) FROM unnest(?::text[]) AS privilege
"""
_HAS_SEQUENCE_PRIVILEGES: Final = """
SELECT coalesce(bool_and(has_sequence_privilege(objid, 'USAGE, UPDATE')), true)
FROM pg_depend JOIN pg_class ON pg_class.oid = objid
WHERE classid = 'pg_class'::regclass AND refclassid = classid AND refobjid = to_regclass(?)
AND deptype = 'a' AND relkind = 'S'
"""


class PostgreSQLSession(Session):
    """A session on PostgreSQL."""

    __slots__ = ()

    dialect: Literal["postgresql"] = "postgresql"
    _returning = " RETURNING id"

    @staticmethod
    def _new_id(cursor: Any) -> int:
        return int(cursor.fetchone()[0])

    def execute(self, fetch: Fetch[T], sql: str, values: tuple[object, ...]) -> T:
        check_values(values)
        connection = self._connection or self.connection
        cursor = connection.cursor()
        if values:
            if (wanted := sql.count("?")) != len(values):
                raise StoreError(f"the statement has {wanted} placeholders `?` for {len(values)} values: {sql}")
            sql = sql.replace("%", "%%").replace("?", "%s")
        self._send(cursor, self.before() + sql, values or None)
        return fetch(cursor)

    def _send(self, cursor: Any, sql: str, values: tuple[object, ...] | None = None) -> None:
        """Run a statement, and count the wait if a lock was not to be had. Successful waits are not reported."""
        begun = time.monotonic()
        try:
            cursor.execute(sql, values)
        except Exception as error:
            if getattr(error, "pgcode", None) in LOCKED:
                self.sessions.lock_waits.add(time.monotonic() - begun)
            raise

    def _lock_timeout(self) -> str:
        """Return a statement that limits waits for locks to the remaining time. Empty if the default will do."""
        left = self._deadline - time.monotonic()
        return "" if left > 0.99 * self.sessions.patience else f"SET LOCAL lock_timeout = {max(1, int(left * 1000))};\n"

    def _is_lost(self, error: Exception) -> bool:
        return isinstance(translate(error, self.sessions.label), ConnectionLost)


class ReadSession(PostgreSQLSession):
    """A session that only reads: each query sees what is committed by then."""

    __slots__ = ()
    writes = False

    def before(self) -> str:
        return "SET TRANSACTION READ ONLY;\n" + self._lock_timeout()


class WriteSession(PostgreSQLSession):
    """A transaction, which begins with its first statement."""

    __slots__ = ("_begun", "_statements")

    def __init__(self, sessions: Any, deadline: float) -> None:
        super().__init__(sessions, deadline)
        self._begun = False
        self._statements = 0

    @property
    def untouched(self) -> bool:
        return self._statements <= 1

    def before(self) -> str:
        self._statements += 1
        if self._begun:
            self._require_transaction()
            return ""
        self._begun = True
        return "BEGIN;\n" + self._lock_timeout()

    def _require_transaction(self) -> None:
        if self._begun and self._connection.get_transaction_status() == IDLE:
            raise StoreError(
                f"{self.sessions.label}: the transaction was ended from inside, or its first statement failed; leave "
                "COMMIT and ROLLBACK to the host"
            )

    def commit(self) -> None:
        """Commit. If the connection is lost meanwhile, ask over another one whether the commit was done."""
        connection = self._connection
        transaction: int | None = None
        try:
            if connection is not None and self._begun:
                self._require_transaction()
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
        connection, begun, self._begun = self._connection, self._begun, False
        if connection is not None and begun:
            with suppress(Exception):  # if the connection is broken, the server rolls back
                connection.cursor().execute("ROLLBACK")
        super().undo()

    def _resolve_outcome(self, transaction: int, incarnation: object, error: Exception) -> None:
        """Return if the transaction was committed. `OutcomeUnknown` if nobody can tell within `patience` seconds."""
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
            result = super().execute(fetch, sql, values)
            if self._connection.get_transaction_status() != IDLE:
                raise StoreError(f"{self.sessions.label}: a transaction was begun from inside, and is rolled back")
            return result
        except Exception as error:
            # psycopg2 raises InterfaceError before it sends anything over a closed connection.
            if self._connection is not None and self._is_lost(error) and type(error).__name__ != "InterfaceError":
                message = f"{self.sessions.label}: the connection was lost, and the write may have been done: "
                raise OutcomeUnknown(message + one_line(error)) from error
            raise
        finally:
            self.commit()


class PostgreSQLAdminSession(BaseAdminSession, PostgreSQLSession):
    """A session for administration of a PostgreSQL database."""

    def script(self, sql: str) -> None:
        self.rows(sql)

    def _send(self, cursor: Any, sql: str, values: tuple[object, ...] | None = None) -> None:
        cursor.execute(sql, values)

    def columns(self, table: str) -> frozenset[str]:
        found = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped"
        return frozenset(name for (name,) in self.rows(found, quote(table)))

    def check_privileges(self, tables: Iterable[str], *, writes: bool) -> None:
        for table in (TABLE, *tables):
            must_write = writes and table != TABLE
            needed = ["SELECT", "INSERT", "UPDATE", "DELETE"] if must_write else ["SELECT"]
            has_all = self.rows(_HAS_PRIVILEGES, quote(table), needed)[0][0]
            if not has_all or (must_write and not self.rows(_HAS_SEQUENCE_PRIVILEGES, quote(table))[0][0]):
                raise Damaged(
                    f"The user of the store {self._store} lacks privileges on the table {table}, or on its sequence: "
                    "grant them"
                )

    def size(self, tables: Iterable[str]) -> int:
        size = "SELECT coalesce(pg_total_relation_size(to_regclass(?)), 0)"
        return sum(self.rows(size, quote(table))[0][0] for table in tables)

    def begin_transaction(self, *, shared: bool = False) -> None:
        self.script("BEGIN")
        name = _SHARED_LOCK if shared else f"migrations of {self._store}"
        self.rows("SELECT pg_advisory_xact_lock(?)", lock_key(name))

    def check_deferred(self) -> None:
        self.script("SET CONSTRAINTS ALL IMMEDIATE")

    def commit_transaction(self) -> None:
        self.script("COMMIT")


def lock_key(name: str) -> int:
    """Return the 64-bit key of an advisory lock. Keys are per database."""
    return int.from_bytes(hashlib.blake2b(f"plughost store {name}".encode(), digest_size=8).digest(), signed=True)


def begin_session(cursor: Any, columns: str, settings: Mapping[str, object], label: str) -> list[Any]:
    """Set what the host relies on, and return the row of these columns, by one query.

    As options of the connection, a pooler would refuse or ignore the settings.

    Raises:
        SetupError: A pooler lets connections share a session of the server, and so their claims and settings. Or the
            database can't hold every text, or the session begins with another syntax of texts.
    """
    connection = cursor.connection
    if (encoding := connection.get_parameter_status("server_encoding")) not in {None, "UTF8"}:
        raise SetupError(
            f"The {label} is in a database with the encoding {encoding}, which can't hold every text as it is: create "
            "one with ENCODING 'UTF8', and copy this one there with pg_dump and psql"
        )
    if connection.get_parameter_status("standard_conforming_strings") != "on":  # psycopg2 quotes by what it was then
        raise SetupError(
            f"The {label} is reached with standard_conforming_strings off, so that a backslash in a text is no text: "
            "ALTER the ROLE of the URL, or its DATABASE, and SET standard_conforming_strings = on"
        )
    settings = {**_SETTINGS, **settings}
    if connection.server_version >= _IDLE_SESSIONS_END:
        settings["idle_session_timeout"] = 0  # the claims of a session end with it
    changes = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    cursor.execute(f"SELECT {IS_UNSHARED}, pg_backend_pid(), {columns}, {changes}")
    is_unshared, process, *row = cursor.fetchone()
    if process != connection.get_backend_pid():  # a pooler's: the next query must be of the same session
        cursor.execute(f"SELECT NOT {IS_UNSHARED}")
        is_unshared = is_unshared and cursor.fetchone()[0]
    if not is_unshared:
        raise SetupError(
            f"The {label} is reached through a pooler that lets connections share a session of the server: use session "
            "pooling (in PgBouncer, pool_mode = session and server_reset_query = DISCARD ALL), or connect directly"
        )
    return list(row[: -len(settings)])


@contextmanager
def cut_off_after(seconds: float, label: str, connection: Any) -> Iterator[None]:
    """Shut a connection down if a block takes longer: psycopg2 waits for a silent server without end.

    Raises:
        ConnectionLost: That was just after the block's last query.
    """
    timer = threading.Timer(seconds, shut_down, [connection])
    timer.daemon = True
    with suppress(RuntimeError):  # no thread can be started at the moment
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with suppress(RuntimeError):  # it was not started
            timer.join()
    if connection.was_cut_off:
        raise ConnectionLost(f"{label}: {CUT_OFF}")


def shut_down(connection: Any) -> None:
    """Shut down a connection's socket, so that a thread that waits for the server finds it closed."""
    connection.was_cut_off = True
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as own:  # it may have been closed
        own.shutdown(socket.SHUT_RDWR)


@cache
def connection_class(driver: Any) -> type:
    """Return a subclass of the driver's connection that has its server's incarnation, and whether it was cut off."""
    return type("Connection", (driver.extensions.connection,), {"incarnation": None, "was_cut_off": False})


@cache
def bytes_type(driver: Any) -> Any:
    """Return the driver's type for binary columns that returns `bytes`, as on SQLite, not a `memoryview`."""

    def to_bytes(value: str | None, cursor: Any) -> bytes | None:
        return None if value is None else bytes(driver.BINARY(value, cursor))

    return driver.extensions.new_type(driver.BINARY.values, "BYTES", to_bytes)
