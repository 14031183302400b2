"""PostgreSQL, through psycopg2: one database may hold the stores of several plugins and serve several hosts."""

from __future__ import annotations

import re
import select
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from plughost._optional import LibraryError, import_optional
from plughost.stores._claims import Claims
from plughost.stores._errors import Busy, ConnectionLost, Refused, SetupError, Unavailable, Unreached, translate
from plughost.stores._pool import Pool, WaitStatistics
from plughost.stores._postgresql_sessions import (
    IDLE,
    IS_UNSHARED,
    PostgreSQLAdminSession,
    ReadSession,
    SingleSession,
    WriteSession,
    begin_session,
    bytes_type,
    connection_class,
    cut_off_after,
    lock_key,
    shut_down,
)
from plughost.stores._sessions import TABLE, BaseDatabase, Mode, quote

if TYPE_CHECKING:
    from plughost.stores._postgresql_sessions import PostgreSQLSession
    from plughost.stores._sessions import Session

_MIGRATION_PATIENCE: Final = 60
_CLAIM_RELEASE_SECONDS: Final = 1.0  # until the server has noticed that a connection was closed, and its claim is over
_POLL_INTERVAL: Final = 0.02
_WATCH_INTERVAL: Final = 1.0
_REFUSAL_SECONDS: Final = 0.25  # for which a store asks for no further connection after it was refused one
_NO_LIMIT: Final = threading.TIMEOUT_MAX
# What an administrator allows ordinary transactions may be too short for a migration. From version 14 on, a server
# rolls a long one back soon after its host was killed.
_MIGRATION_LIMITS: Final = """
SELECT set_config(name, CASE name WHEN 'client_connection_check_interval' THEN '1s' ELSE '0' END, false)
FROM pg_settings
WHERE name IN ('client_connection_check_interval', 'idle_in_transaction_session_timeout', 'transaction_timeout')
"""
_TABLESPACES: Final = """
SELECT DISTINCT spcname
FROM pg_class
JOIN pg_database ON datname = current_database()
JOIN pg_tablespace ON pg_tablespace.oid = coalesce(nullif(reltablespace, 0), dattablespace)
LEFT JOIN pg_index ON indexrelid = pg_class.oid
WHERE coalesce(indrelid, pg_class.oid) IN (SELECT to_regclass(quote_ident(name)) FROM unnest(?::text[]) AS name)
"""
# The reset time of the statistics identifies a server's incarnation: each crash and each other server has its own.
_INCARNATION: Final = "SELECT stats_reset FROM pg_stat_bgwriter"
_SERVER_MESSAGE: Final = re.compile(":  ")  # libpq puts it behind the severity, which is in the server's language
_IS_FULL: Final = re.compile("(too many (connections|clients)|connection slots).*")
_DEFAULTS: Final = {
    "application_name": "plughost",
    # A server that vanished silently is noticed within about ten seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class PostgreSQL(BaseDatabase):
    """A store in a PostgreSQL database."""

    def sessions(self, *, for_pony: bool) -> PostgreSQLSessions:
        return PostgreSQLSessions(self)

    def connect(self, seconds: float, **settings: int) -> Any:
        """Return a new connection that holds the claim that a host serves the store. See `exclusive_claim`."""
        claim = f"{IS_UNSHARED} AND pg_try_advisory_lock_shared({lock_key(self.store)}), ({_INCARNATION})"
        connection, found = self._connect(claim, seconds, **settings)
        claimed, connection.incarnation = found
        if not claimed:
            connection.close()
            raise Busy(f"The {self.label} is being migrated by another host, purged or restored.")
        return connection

    def check(self) -> None:
        with self.administer() as db:
            db.rows("SELECT version()")  # the server checks its files itself

    def exists(self) -> bool:
        return True  # a connection shows whether it is there

    def administer(self) -> PostgreSQLAdminSession:
        return self._open_admin_session(lock_timeout=_MIGRATION_PATIENCE * 1000)

    def _open_admin_session(self, **settings: int) -> PostgreSQLAdminSession:
        connection, _ = self._connect("1", **{"statement_timeout": 0, **settings})
        db = PostgreSQLAdminSession(connection, self.store)
        db.rows(_MIGRATION_LIMITS)
        return db

    def trial(self) -> PostgreSQLAdminSession:
        # In a transaction that is rolled back. A host that serves the store must not wait long for a trial.
        return self._open_admin_session(lock_timeout=int(self.config.patience * 1000))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Exclude hosts that migrate, purge or restore: each gives up its own claim meanwhile, though it may serve."""
        with self.trial() as db:
            try:
                db.rows("SELECT pg_advisory_lock(?)", lock_key(f"turn of {self.store}"))
            except Busy as error:
                raise Busy(f"The {self.label} is being migrated by another host, purged or restored.") from error
            yield

    def shared_claim(self) -> AbstractContextManager[None]:
        return nullcontext()  # each connection of a session holds the claim

    def claims(self) -> Claims:
        patience = self.config.patience
        connect = partial(self._open_admin_session, statement_timeout=int(patience * 1000))
        return Claims(connect, partial(cut_off_after, patience, self.label))

    @contextmanager
    def exclusive_claim(self) -> Iterator[None]:
        self.refuse_read_only()
        with self._open_admin_session() as db:
            deadline = time.monotonic() + _CLAIM_RELEASE_SECONDS
            while not db.rows("SELECT pg_try_advisory_lock(?)", lock_key(self.store))[0][0]:
                if time.monotonic() > deadline:
                    raise Busy(
                        f"A host serves the {self.label} ({self.config.place}): "
                        "stop it first, or disable the plugin there."
                    )
                time.sleep(_POLL_INTERVAL)
            try:
                yield
            finally:
                # The server ends the claim of a closed connection itself, but perhaps later.
                with suppress(Unavailable), cut_off_after(_CLAIM_RELEASE_SECONDS, self.label, db.connection):
                    db.rows("SELECT pg_advisory_unlock(?)", lock_key(self.store))

    def erase(self, tables: Iterable[str]) -> None:
        with self.administer() as db:
            db.begin_transaction()
            for table in tables:
                db.rows(f"DROP TABLE IF EXISTS {quote(table)} CASCADE")
            if db.has_table(TABLE):
                db.rows(f"DELETE FROM {TABLE} WHERE store = ?", self.store)  # noqa: S608 - our own table's name  # nosec B608
            db.commit_transaction()

    def _connect(self, columns: str, seconds: float | None = None, **settings: int) -> tuple[Any, Any]:
        """Return a new connection in autocommit mode, with settings of the server, and the row of these columns.

        Give up after `connect_timeout` for the connection, and after as long again for the row, since a pooler lets
        clients in that then wait for its server. Never wait longer than `seconds` in all.
        """
        driver = driver_for(self.store)
        try:
            url: dict[str, Any] = driver.extensions.parse_dsn(self.config.url)
            arguments = {**_DEFAULTS, "connect_timeout": self.config.connect_timeout, **url, "client_encoding": "UTF8"}
            limit = max(0, int(arguments["connect_timeout"]))  # 0 means no limit
        except (driver.ProgrammingError, ValueError) as error:
            # libpq's message would repeat the URL with the password.
            raise SetupError(
                f"The URL of the {self.label} is malformed: {self.config.place}; write % in a part as %25, = in "
                "the value of a parameter as %3D, and parameters as libpq knows them"
            ) from error
        if self.config.read_only:
            settings["default_transaction_read_only"] = 1
        if seconds is not None:
            hosts = 1 + arguments.get("host", "").count(",")  # libpq gives each of them as long, in whole seconds
            limit = max(1, int(min(limit or seconds, seconds / hosts)))
        arguments["connect_timeout"] = limit
        begun = time.monotonic()
        with self._connecting():
            connection = driver.connect(**arguments, connection_factory=connection_class(driver))
            driver.extensions.register_type(bytes_type(driver), connection)
        connected = time.monotonic()
        allowed = min(limit or _NO_LIMIT, _NO_LIMIT if seconds is None else begun + seconds - connected)
        try:
            connection.autocommit = True
            with self._connecting(), cut_off_after(allowed, self.label, connection), connection.cursor() as cursor:
                return connection, begin_session(cursor, columns, settings, self.label)
        except BaseException as error:
            connection.close()
            if isinstance(error, ConnectionLost) and time.monotonic() >= connected + allowed:
                message = f"{self.label}: PostgreSQL did not answer within {round(allowed, 1):g} s of the connection"
                raise Unreached(message) from error
            raise

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """Translate the errors of a connection that is not in use yet.

        `Refused` if the server is there, but takes none at the moment. `Unreached` if it is away or closed it.
        """
        try:
            yield
        except driver_for(self.store).Error as error:
            found = translate(error, self.label)
            if isinstance(found, ConnectionLost):
                # Before it admits a connection, a server sends a severity but no code that libpq passes on.
                text = _IS_FULL.sub(r"\g<0>; to open, a store needs 2 connections: raise the limit", str(found))
                is_refusal = not error.pgcode and _SERVER_MESSAGE.search(str(error))
                found = (Refused if is_refusal else Unreached)(text)
            raise found or error from error


class PostgreSQLSessions(Pool):
    """Makes the sessions of one open store, pools their connections, and shuts down those in use for too long.

    TCP notices a server that is gone, and the server itself ends statements that take too long. A suspended server
    does neither: its kernel still answers, and psycopg2 has no time-out of its own.
    """

    def __init__(self, database: PostgreSQL) -> None:
        config = database.config
        super().__init__(config, database.label)
        self.patience: float = config.patience
        self.lock_waits: WaitStatistics = WaitStatistics()
        self._open = partial(
            database.connect,
            lock_timeout=int(config.patience * 1000),
            statement_timeout=int(config.statement_timeout * 1000),
            idle_in_transaction_session_timeout=int(config.statement_timeout * 2000),
        )
        self._statement_timeout, self._is_read_only = config.statement_timeout, config.read_only
        self._watched: dict[int, tuple[Any, float]] = {}
        self._cutting = threading.Lock()  # so that no connection is shut down that was released meanwhile
        self._holds_claim = False
        self._watcher_lock = threading.Lock()  # held by the watcher thread while it runs
        self._refusal, self._refused_until, self._is_one_too_many = "", 0.0, False  # the server's last one
        self._askers: set[int] = set()  # threads that ask the server for a connection

    def session(self, mode: Mode, deadline: float) -> PostgreSQLSession:
        if mode is Mode.READ:
            return ReadSession(self, deadline)
        return WriteSession(self, deadline) if mode is Mode.WRITE else SingleSession(self, deadline)

    def probe(self, *, writes: bool = False, deadline: float | None = None) -> None:
        read_only, _ = self._query_value(deadline, "SHOW transaction_read_only")
        if writes and read_only == "on" and not self._is_read_only:  # as on a standby, or by a setting
            raise Unavailable(f"The database of the {self.label} is read-only.")

    def acquire(self, deadline: float, *, is_probe: bool = False) -> Any:
        """Return a connection, which is watched until `release`.

        A probe waits for no operation, since those that use all connections may wait for a lock.
        """
        connection = super().acquire(deadline, is_probe=is_probe)
        until = time.monotonic() + self.patience if is_probe else deadline + self._statement_timeout
        self._watch(connection, until)
        return connection

    def release(self, connection: Any) -> None:
        with self._cutting:
            self._watched.pop(id(connection), None)
        if self._is_one_too_many and self._has_connections:
            self._is_one_too_many = False
            connection.close()
        super().release(connection)
        if self.slots.queue and not self._askers and time.monotonic() >= self._refused_until:
            self.slots.admit_another()  # else who queues behind a refused one would never ask for a further connection

    def claim(self) -> None:
        # Each connection holds the claim. The pool keeps the last one; if all were ended, the watcher opens another.
        self.release(self.acquire(time.monotonic() + self.patience))
        self._holds_claim = True

    def release_claim(self) -> None:
        self._holds_claim = False
        self.disconnect()

    def transaction_status(self, transaction: int, incarnation: object, deadline: float) -> str | None:
        """Return the status of a transaction: committed, aborted or in progress. None if nobody can tell.

        After a crash, the server's next `incarnation` may give the number of a lost transaction to another one.
        """
        status, answered_by = self._query_value(deadline, "SELECT txid_status(%s)", transaction)
        return None if status == "committed" and answered_by != incarnation else status

    def _query_value(self, deadline: float | None, sql: str, *values: object) -> tuple[str | None, object]:
        """Return the one value that a query finds, and the incarnation of the server that answered."""
        connection = self.acquire(time.monotonic() + self.patience if deadline is None else deadline, is_probe=True)
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

    def _connect(self, deadline: float) -> Any:
        """Return a new connection. Give up at the deadline.

        If the server refuses one, the store gives another back: else a store that lost its connections might get none,
        as long as those of this and of other hosts need more than there are.

        Raises:
            Refused: The server takes no further connection at the moment.
            Unreached: It can't be reached, or takes not a single connection.
        """
        now = time.monotonic()
        if now < self._refused_until and self._has_connections:
            raise Refused(self._refusal)
        left = deadline - now
        thread = threading.get_ident()
        self._askers.add(thread)
        try:
            return self._open(max(1.0, left if left > 0 else self.patience))  # the least that libpq can count
        except Refused as error:
            # Unlike `_has_connections`, this counts one that another thread is just about to use.
            if self.connections <= len(self._askers):
                raise Unreached(str(error)) from error
            self._refusal, self._refused_until = str(error), time.monotonic() + _REFUSAL_SECONDS
            self._is_one_too_many = True
            raise
        finally:
            self._askers.discard(thread)

    @property
    def _has_connections(self) -> bool:
        return bool(self._watched or self._idle)

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
        interval = min(_WATCH_INTERVAL, (self.patience + self._statement_timeout) / 4)
        while not self.closed.wait(interval) or self._watched:  # operations may outlast their store
            if self.closed.is_set():
                self._holds_claim = False
                time.sleep(interval)
            now = time.monotonic()
            self._cut_off_overdue(now)
            self.shrink(now)
            if self._holds_claim and not self._watched and not (restorer and restorer.is_alive()):
                # In a thread of its own, since this one also watches the connections of operations.
                restorer = threading.Thread(target=self._restore_claim, args=(now,), daemon=True)
                with suppress(RuntimeError):  # no thread can be started at the moment
                    restorer.start()
        self._watcher_lock.release()

    def _cut_off_overdue(self, now: float) -> None:
        for key, (connection, deadline) in list(self._watched.items()):
            if now < deadline:
                continue
            with self._cutting:
                if self._watched.get(key) == (connection, deadline):  # else it was released meanwhile
                    shut_down(connection)

    def _restore_claim(self, now: float) -> None:
        """Open a connection to hold the claim, if there is none."""
        with suppress(Exception):  # the server is away, or the store is being purged
            self.release(self.acquire(now))
        if not self._holds_claim:  # it was released meanwhile
            self.disconnect()

    def _is_clean(self, connection: Any) -> bool:
        return not connection.closed and not connection.was_cut_off and connection.get_transaction_status() == IDLE

    def _is_alive(self, connection: Any) -> bool:
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        return not poller.poll(0)  # on an idle connection, a server sends nothing but its end


def driver_for(store: str) -> Any:
    """Return psycopg2. `SetupError` if it is not installed, or can't be imported."""
    try:
        return import_optional("psycopg2", extra="postgresql")
    except LibraryError as error:
        raise SetupError(f"The store {store} is set to PostgreSQL, whose driver can't be used: {error}") from error
