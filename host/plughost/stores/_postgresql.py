"""PostgreSQL, through psycopg2: one database may hold the stores of several plugins and serve several hosts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from plughost._runtime.optional import LibraryError, optional
from plughost.stores._errors import Busy, Refused, SetupError
from plughost.stores._failures import translate
from plughost.stores._postgresql_sessions import PostgreSQLSessions
from plughost.stores._sql import quote

if TYPE_CHECKING:
    from plughost.stores._config import StoreConfig
    from plughost.stores._sql import Row

_SHARED: Final = "plughost migrations"
_MIGRATION_PATIENCE: Final = 60
_SERVER_SAYS: Final = re.compile(r"\bFATAL\b")


class PostgreSQL:
    """A store in a PostgreSQL database; an `Engine`."""

    def __init__(self, store: str, config: StoreConfig) -> None:
        """Remember the URL.

        Args:
            store: The store's name.
            config: Its settings, with a URL.
        """
        assert config.url is not None
        self.store = store
        self.config = config
        self.url: str = config.url

    def sessions(self, *, for_pony: bool) -> PostgreSQLSessions:
        """Return what makes sessions; see `Engine`."""
        arguments = self._arguments(
            lock_timeout=int(self.config.patience * 1000),
            statement_timeout=int(self.config.statement_timeout * 1000),
            idle_in_transaction_session_timeout=int(self.config.statement_timeout * 2000),
        )
        claim = _key(self.store)

        def open_one() -> Any:
            connection = self._open(arguments)
            try:
                with connection.cursor() as cursor:
                    # Each connection of a host holds the claim that a host serves the store; see `alone`.
                    cursor.execute("SELECT pg_try_advisory_lock_shared(%s)", (claim,))
                    if not cursor.fetchone()[0]:
                        message = f"The store {self.store} is being purged."
                        raise Busy(message)
            except BaseException:
                connection.close()
                raise
            return connection

        return PostgreSQLSessions(open_one, self.config, f"store {self.store}")

    def check(self) -> None:
        """Ask the server for its version; it looks after its files itself."""
        with self.administer() as db:
            db.rows("SELECT version()")

    def connection_string(self) -> tuple[str, str | None]:
        """Return how to reach the database, as libpq's tools take it, and the password, which is not in it."""
        driver = _driver(self.store)
        parts = driver.extensions.parse_dsn(self.url)
        password = parts.pop("password", None)
        return driver.extensions.make_dsn(**parts), password

    def exists(self) -> bool:
        """Return True: whether the database is there shows on connecting."""
        return True

    @contextmanager
    def administer(self) -> Iterator[PostgreSQLAdministration]:
        """Return a connection for administration; see `Engine`."""
        with self._administer(lock_timeout=_MIGRATION_PATIENCE * 1000, statement_timeout=0) as db:
            # From version 14 on, a server undoes a long migration soon after the host that ran it was killed.
            check = "client_connection_check_interval"
            db.rows("SELECT set_config(name, '1s', false) FROM pg_settings WHERE name = ?", check)
            yield db

    @contextmanager
    def _administer(self, **settings: int) -> Iterator[PostgreSQLAdministration]:
        connection = self._connect(**settings)
        try:
            yield PostgreSQLAdministration(connection, self.store)
        finally:
            connection.close()

    @contextmanager
    def trial(self) -> Iterator[tuple[PostgreSQLAdministration, PostgreSQLSessions]]:
        """Return connections for what is tried in a transaction that is undone; see `Engine`."""
        mapping = self.sessions(for_pony=True)
        try:
            # Who serves the store is not to wait long for what is only tried.
            with self._administer(lock_timeout=int(self.config.patience * 1000)) as db:
                yield db, mapping
        finally:
            mapping.close()

    def serving(self) -> AbstractContextManager[None]:
        """Return nothing to hold: each connection of `connections` carries the claim."""
        return nullcontext()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Return a claim that excludes every host; see `Engine`."""
        connection = self._connect()
        try:
            administration = PostgreSQLAdministration(connection, self.store)
            if not administration.rows("SELECT pg_try_advisory_lock(?)", _key(self.store))[0][0]:
                message = f"A host serves the store {self.store} ({self.config.place}): stop it first."
                raise Busy(message)
            yield
        finally:
            connection.close()

    def erase(self, tables: Iterable[str]) -> None:
        """Drop the tables and the record of their migrations."""
        with self.administer() as db:
            db.begin()
            for table in tables:
                db.rows(f"DROP TABLE IF EXISTS {quote(table)} CASCADE")
            if db.has_table("plughost_migrations"):
                db.rows("DELETE FROM plughost_migrations WHERE store = ?", self.store)
            db.commit()

    def _arguments(self, **settings: int) -> dict[str, Any]:
        """Return the arguments for the driver, those in the URL among them."""
        driver = _driver(self.store)
        try:
            arguments: dict[str, Any] = driver.extensions.parse_dsn(self.url)
        except driver.ProgrammingError as error:
            # libpq's message repeats the URL, password and all.
            message = f"The URL of the store {self.store} is malformed: {self.config.place}"
            raise SetupError(message) from error
        options = [arguments.pop("options", ""), "-c timezone=UTC", *(f"-c {k}={v}" for k, v in settings.items())]
        defaults = {
            "connect_timeout": self.config.connect_timeout,
            "application_name": "plughost",
            # A server that vanished without a word is noticed within about ten seconds.
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            "client_encoding": "UTF8",
        }
        return {**defaults, **arguments, "options": " ".join(options).strip()}

    def _connect(self, **settings: int) -> Any:
        return self._open(self._arguments(**settings))

    def _open(self, arguments: dict[str, Any]) -> Any:
        """Return a new connection in autocommit mode.

        Raises:
            Refused: The server is there, and takes no connection at the moment.
            StoreError: As `translate` finds.
        """
        driver = _driver(self.store)
        try:
            connection = driver.connect(**arguments)
        except driver.Error as error:
            message = f"store {self.store}: {str(error).strip()}"
            # libpq gives no code for what a server says before it lets anybody in, but its severity.
            if isinstance(error, driver.OperationalError) and _SERVER_SAYS.search(message):
                raise Refused(message) from error
            raise translate(error, f"store {self.store}") or error from error
        connection.autocommit = True
        return connection


class PostgreSQLAdministration:
    """A connection for administration; see `Administration`."""

    def __init__(self, connection: Any, store: str) -> None:
        """Wrap a connection in autocommit mode."""
        self.connection = connection
        self._store = store

    def script(self, sql: str) -> None:
        """Run statements that end in semicolons, without committing."""
        self._execute(sql, None)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run one statement, and return its rows."""
        return self._execute(sql.replace("%", "%%").replace("?", "%s"), values)

    def _execute(self, sql: str, values: tuple[object, ...] | None) -> list[Row]:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql, values)
                return cursor.fetchall() if cursor.description else []
        except _driver(self._store).Error as error:
            raise translate(error, f"store {self._store}") or error from error

    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name on the search path."""
        return bool(self.rows("SELECT to_regclass(?) IS NOT NULL", quote(name))[0][0])

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        return int(self.rows(f"SELECT count(*) FROM {quote(table)}")[0][0])  # noqa: S608 - a quoted name  # nosec B608

    def size(self, tables: Iterable[str]) -> int:
        """Return the size of the tables with their indexes in bytes."""
        return sum(
            self.rows("SELECT coalesce(pg_total_relation_size(to_regclass(?)), 0)", quote(table))[0][0]
            for table in tables
        )

    def begin(self) -> None:
        """Begin a transaction that holds the lock of the store's migrations."""
        self._begin(f"migrations of {self._store}")

    def check_deferred(self) -> None:
        """Check the constraints that are deferred."""
        self._execute("SET CONSTRAINTS ALL IMMEDIATE", None)

    def commit(self) -> None:
        """Commit what was begun."""
        self._execute("COMMIT", None)

    def make_shared(self, sql: str) -> None:
        """Make a table that the stores in this database share, unless it is there."""
        self._begin(_SHARED)
        self.script(sql)
        self.commit()

    def _begin(self, lock: str) -> None:
        # BEGIN by hand, since psycopg2 would send it only with the first statement.
        self._execute("BEGIN", None)
        self.rows("SELECT pg_advisory_xact_lock(?)", _key(lock))


def _key(name: str) -> int:
    """Return an advisory lock's 64-bit key; such keys are per database."""
    return int.from_bytes(hashlib.blake2b(f"plughost store {name}".encode(), digest_size=8).digest(), signed=True)


def _driver(store: str) -> Any:
    try:
        driver = optional("psycopg2", extra="postgresql")
        optional("psycopg2.extensions", extra="postgresql")
    except LibraryError as error:
        message = f"The store {store} is set to PostgreSQL, whose driver can't be used: {error}"
        raise SetupError(message) from error
    return driver
