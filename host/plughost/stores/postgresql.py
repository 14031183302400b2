"""PostgreSQL, through psycopg2: one database may hold the stores of several plugins and serve several hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from plughost.stores.connections import Connections
from plughost.stores.engines import quote
from plughost.stores.errors import Busy, SetupError, StoreError
from plughost.stores.failures import translate
from plughost.stores.watchdog import Watchdog

if TYPE_CHECKING:
    from plughost.stores.config import StoreConfig
    from plughost.stores.engines import Row

_MIGRATING: Final = "plughost migrations"
_MIGRATION_PATIENCE: Final = 60


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

    def connections(self) -> Connections:
        """Return a new pool of Pony connections; see `Engine`."""
        label = f"store {self.store}"
        arguments = self._arguments(
            lock_timeout=int(self.config.patience * 1000),
            statement_timeout=int(self.config.statement_timeout * 1000),
            idle_in_transaction_session_timeout=int(self.config.statement_timeout * 2000),
        )
        claim = _key(self.store)

        def open_one() -> Any:
            connection = _driver(self.store).connect(**arguments)
            try:
                connection.autocommit = True
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

        watchdog = Watchdog(self.config.patience + self.config.statement_timeout, label)
        return Connections(open_one, label=label, patience=self.config.patience, share_fate=True, watchdog=watchdog)

    def provider(self) -> Any:
        """Return the Pony provider class."""
        _driver(self.store)
        from plughost.stores.sessions_postgresql import GuardedPostgreSQL  # noqa: PLC0415 - needs the driver

        return GuardedPostgreSQL

    def exists(self) -> bool:
        """Return True: whether the database is there shows on connecting."""
        return True

    @contextmanager
    def administer(self) -> Iterator[PostgreSQLAdministration]:
        """Return a connection for administration; see `Engine`."""
        connection = self._connect(lock_timeout=_MIGRATION_PATIENCE * 1000, statement_timeout=0)
        try:
            yield PostgreSQLAdministration(connection, self.store)
        finally:
            connection.close()

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
        with self.administer() as db, db.locked():
            for table in tables:
                db.rows(f"DROP TABLE IF EXISTS {quote(table)} CASCADE")
            if db.has_table("plughost_migrations"):
                db.rows("DELETE FROM plughost_migrations WHERE store = ?", self.store)

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
        driver = _driver(self.store)
        try:
            connection = driver.connect(**self._arguments(**settings))
        except driver.Error as error:
            raise translate(error, f"store {self.store}") or error from error
        connection.autocommit = True
        return connection


class PostgreSQLAdministration:
    """A connection for administration; see `Administration`."""

    def __init__(self, connection: Any, store: str) -> None:
        """Wrap a connection in autocommit mode."""
        self._connection = connection
        self._store = store

    def script(self, sql: str) -> None:
        """Run statements that end in semicolons, without committing."""
        self._execute(sql, None)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Run one statement, and return its rows."""
        return self._execute(sql.replace("%", "%%").replace("?", "%s"), values)

    def _execute(self, sql: str, values: tuple[object, ...] | None) -> list[Row]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, values)
                return cursor.fetchall() if cursor.description else []
        except _driver(self._store).Error as error:
            raise translate(error, f"store {self._store}") or error from error

    def has_table(self, name: str) -> bool:
        """Return whether there is a table of this name on the search path."""
        return bool(self.rows("SELECT to_regclass(?) IS NOT NULL", quote(name))[0][0])

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        return int(self.rows(f"SELECT count(*) FROM {quote(table)}")[0][0])  # noqa: S608 - a quoted name

    def size(self, tables: Iterable[str]) -> int:
        """Return the size of the tables with their indexes in bytes."""
        return sum(
            self.rows("SELECT coalesce(pg_total_relation_size(to_regclass(?)), 0)", quote(table))[0][0]
            for table in tables
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Return a transaction that holds the lock of all migrations in this database."""
        # BEGIN by hand, since psycopg2 would send it only with the first statement.
        self._execute("BEGIN", None)
        try:
            self.rows("SELECT pg_advisory_xact_lock(?)", _key(_MIGRATING))
            yield
            self._execute("COMMIT", None)
        except BaseException:
            # On a broken connection there is nothing to undo: the server did that.
            with suppress(StoreError):
                self._execute("ROLLBACK", None)
            raise


def _key(name: str) -> int:
    """Return an advisory lock's 64-bit key; such keys are per database."""
    return int.from_bytes(hashlib.blake2b(f"plughost store {name}".encode(), digest_size=8).digest(), signed=True)


def _driver(store: str) -> Any:
    try:
        import psycopg2  # noqa: PLC0415 - an extra
        import psycopg2.extensions  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = f"The store {store} is set to PostgreSQL, whose driver is missing: pip install plughost[postgresql]"
        raise SetupError(message) from error
    return psycopg2
