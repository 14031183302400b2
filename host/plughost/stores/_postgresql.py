"""PostgreSQL, through psycopg2: one database may hold the stores of several plugins and serve several hosts."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import cache, partial
from typing import Any, Final

from plughost._runtime.claims import Claims
from plughost._runtime.optional import LibraryError, import_optional
from plughost.stores._errors import Busy, ConnectionLost, Damaged, Refused, SetupError, Unreached, translate
from plughost.stores._postgresql_sessions import PostgreSQLSession, PostgreSQLSessions
from plughost.stores._sessions import TABLE, BaseAdminSession, BaseDatabase, quote

_SHARED_LOCK: Final = "plughost migrations"
_MIGRATION_PATIENCE: Final = 60
_CLAIM_RELEASE_SECONDS: Final = 1.0  # until the server has noticed that a connection was closed, and its claim is over
_POLL_INTERVAL: Final = 0.02
# The reset time of the statistics identifies a server's incarnation: each crash and each other server has its own.
_INCARNATION: Final = "SELECT stats_reset FROM pg_stat_bgwriter"
_HAS_PRIVILEGES: Final = """
SELECT coalesce(bool_and(has_table_privilege(to_regclass(?), privilege)), true) FROM unnest(?::text[]) AS privilege
"""
_HAS_SEQUENCE_PRIVILEGES: Final = """
SELECT coalesce(bool_and(has_sequence_privilege(objid, 'USAGE, UPDATE')), true)
FROM pg_depend JOIN pg_class ON pg_class.oid = objid
WHERE classid = 'pg_class'::regclass AND refclassid = classid AND refobjid = to_regclass(?)
AND deptype = 'a' AND relkind = 'S'
"""
_SERVER_MESSAGE: Final = re.compile(r"\bFATAL\b")
_DEFAULTS: Final = {
    "application_name": "plughost",
    # A server that vanished silently is noticed within about ten seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "client_encoding": "UTF8",
}


class PostgreSQL(BaseDatabase):
    """A store in a PostgreSQL database."""

    def sessions(self, *, for_pony: bool) -> PostgreSQLSessions:
        arguments = self._arguments(
            lock_timeout=int(self.config.patience * 1000),
            statement_timeout=int(self.config.statement_timeout * 1000),
            idle_in_transaction_session_timeout=int(self.config.statement_timeout * 2000),
        )
        arguments["connection_factory"] = _connection_class(driver_for(self.store))
        claim = _lock_key(self.store)

        def connect(seconds: int) -> Any:
            limit = int(arguments["connect_timeout"])  # 0 means no limit
            return self._connect({**arguments, "connect_timeout": min(limit, seconds) if limit > 0 else seconds})

        def prepare(connection: Any) -> None:
            with self._connecting(), connection.cursor() as cursor:
                # Each connection of a host holds the claim that a host serves the store; see `exclusive_claim`.
                cursor.execute(f"SELECT pg_try_advisory_lock_shared(%s), ({_INCARNATION})", (claim,))
                claimed, connection.incarnation = cursor.fetchone()
            if not claimed:
                raise Busy(f"The {self.label} is being purged.")

        return PostgreSQLSessions(connect, prepare, self.config, self.label)

    def check(self) -> None:
        with self.administer() as db:
            db.rows("SELECT version()")  # the server checks its files itself

    def exists(self) -> bool:
        return True  # a connection shows whether it is there

    @contextmanager
    def administer(self) -> Iterator[PostgreSQLAdminSession]:
        with self._administer(lock_timeout=_MIGRATION_PATIENCE * 1000, statement_timeout=0) as db:
            # From version 14 on, a server then rolls a long migration back soon after its host was killed.
            check = "client_connection_check_interval"
            db.rows("SELECT set_config(name, '1s', false) FROM pg_settings WHERE name = ?", check)
            yield db

    @contextmanager
    def _administer(self, **settings: int) -> Iterator[PostgreSQLAdminSession]:
        db = self._open_admin_session(**settings)
        with closing(db.connection):
            yield db

    def _open_admin_session(self, **settings: int) -> PostgreSQLAdminSession:
        return PostgreSQLAdminSession(self._connect(self._arguments(**settings)), self.store)

    def trial(self) -> AbstractContextManager[PostgreSQLAdminSession]:
        # In a transaction that is rolled back. A host that serves the store must not wait long for a trial.
        return self._administer(lock_timeout=int(self.config.patience * 1000))

    def shared_claim(self) -> AbstractContextManager[None]:
        return nullcontext()  # each connection of a session holds the claim

    def claims(self) -> Claims:
        return Claims(partial(self._open_admin_session, statement_timeout=int(self.config.patience * 1000)))

    @contextmanager
    def exclusive_claim(self) -> Iterator[None]:
        self.refuse_read_only()
        with self._administer() as db:
            deadline = time.monotonic() + _CLAIM_RELEASE_SECONDS
            while not db.rows("SELECT pg_try_advisory_lock(?)", _lock_key(self.store))[0][0]:
                if time.monotonic() > deadline:
                    raise Busy(
                        f"A host serves the {self.label} ({self.config.place}): "
                        "stop it first, or disable the plugin there."
                    )
                time.sleep(_POLL_INTERVAL)
            yield

    def erase(self, tables: Iterable[str]) -> None:
        with self.administer() as db:
            db.begin_transaction()
            for table in tables:
                db.rows(f"DROP TABLE IF EXISTS {quote(table)} CASCADE")
            if db.has_table(TABLE):
                db.rows(f"DELETE FROM {TABLE} WHERE store = ?", self.store)  # noqa: S608 - our own table's name  # nosec B608
            db.commit_transaction()

    def _arguments(self, **settings: int) -> dict[str, Any]:
        """Return the arguments for the driver, including those in the URL."""
        driver = driver_for(self.store)
        try:
            arguments: dict[str, Any] = driver.extensions.parse_dsn(self.config.url)
        except driver.ProgrammingError as error:
            # libpq's message would repeat the URL with the password.
            raise SetupError(f"The URL of the {self.label} is malformed: {self.config.place}") from error
        if self.config.read_only:
            settings["default_transaction_read_only"] = 1
        options = [arguments.pop("options", ""), "-c timezone=UTC", *(f"-c {k}={v}" for k, v in settings.items())]
        timeout = {"connect_timeout": self.config.connect_timeout}
        return {**_DEFAULTS, **timeout, **arguments, "options": " ".join(options).strip()}

    def _connect(self, arguments: dict[str, Any]) -> Any:
        """Return a new connection in autocommit mode."""
        with self._connecting():
            connection = driver_for(self.store).connect(**arguments)
        connection.autocommit = True
        return connection

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        """Translate the errors of a connection that is not in use yet.

        `Refused` if the server is there, but takes none at the moment; `Unreached` if it is away or closed it.
        """
        try:
            yield
        except driver_for(self.store).Error as error:
            found = translate(error, self.label)
            if isinstance(found, ConnectionLost):
                # Before it admits a connection, a server sends a severity but no code that libpq passes on.
                found = (Refused if _SERVER_MESSAGE.search(str(found)) else Unreached)(str(found))
            raise found or error from error


class PostgreSQLAdminSession(BaseAdminSession, PostgreSQLSession):
    """A session for administration of a PostgreSQL database."""

    def script(self, sql: str) -> None:
        self.rows(sql)

    def _send(self, cursor: Any, sql: str, values: tuple[object, ...] | None = None) -> None:
        cursor.execute(sql, values)

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT to_regclass(?) IS NOT NULL", quote(name))[0][0])

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
        self.rows("SELECT pg_advisory_xact_lock(?)", _lock_key(name))

    def check_deferred(self) -> None:
        self.script("SET CONSTRAINTS ALL IMMEDIATE")

    def commit_transaction(self) -> None:
        self.script("COMMIT")


@cache
def _connection_class(driver: Any) -> type:
    """Return a subclass of the driver's connection that records its server's incarnation."""
    return type("Connection", (driver.extensions.connection,), {"incarnation": None})


def _lock_key(name: str) -> int:
    """Return the 64-bit key of an advisory lock; keys are per database."""
    return int.from_bytes(hashlib.blake2b(f"plughost store {name}".encode(), digest_size=8).digest(), signed=True)


def driver_for(store: str) -> Any:
    """Return psycopg2; `SetupError` if it is not installed, or can't be imported."""
    try:
        driver = import_optional("psycopg2", extra="postgresql")
        import_optional("psycopg2.extensions", extra="postgresql")
    except LibraryError as error:
        raise SetupError(f"The store {store} is set to PostgreSQL, whose driver can't be used: {error}") from error
    return driver
