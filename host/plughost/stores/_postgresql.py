"""PostgreSQL, through psycopg2: one database may hold the stores of several plugins and serve several hosts."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import cache, partial
from typing import Any, Final

from plughost._queries import quote
from plughost._runtime.claims import Claims
from plughost._runtime.optional import LibraryError, import_optional
from plughost.stores._databases import TABLE, Administration, Database
from plughost.stores._errors import Busy, ConnectionLost, Refused, SetupError, Unreached, translate
from plughost.stores._postgresql_sessions import PostgreSQLSession, PostgreSQLSessions

_SHARED: Final = "plughost migrations"
_MIGRATION_PATIENCE: Final = 60
_LEAVING: Final = 1.0  # seconds: a connection that was closed just now has its claim until the server has seen it
_ASK_AGAIN: Final = 0.02
# A server that recovers from a crash begins its statistics anew, as does one that takes another's place.
_LIFE: Final = "SELECT stats_reset FROM pg_stat_bgwriter"
_MAY_COUNT: Final = """
SELECT coalesce(bool_and(has_sequence_privilege(objid, 'USAGE, UPDATE')), true)
FROM pg_depend JOIN pg_class ON pg_class.oid = objid
WHERE classid = 'pg_class'::regclass AND refclassid = classid AND refobjid = to_regclass(?)
AND deptype = 'a' AND relkind = 'S'
"""
_SERVER_SAYS: Final = re.compile(r"\bFATAL\b")
_DEFAULTS: Final = {
    "application_name": "plughost",
    # A server that vanished without a word is noticed within about ten seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "client_encoding": "UTF8",
}


class PostgreSQL(Database):
    """A store in a PostgreSQL database."""

    def sessions(self, *, for_pony: bool) -> PostgreSQLSessions:
        arguments = self._arguments(
            lock_timeout=int(self.config.patience * 1000),
            statement_timeout=int(self.config.statement_timeout * 1000),
            idle_in_transaction_session_timeout=int(self.config.statement_timeout * 2000),
        )
        arguments["connection_factory"] = _kind_of_connection(driver_for(self.store))
        claim = _key(self.store)

        def connect(seconds: int) -> Any:
            limit = int(arguments["connect_timeout"])  # 0 is none
            return self._open({**arguments, "connect_timeout": min(limit, seconds) if limit > 0 else seconds})

        def prepare(connection: Any) -> None:
            with self._reaching(), connection.cursor() as cursor:
                # Each connection of a host holds the claim that a host serves the store; see `alone`.
                cursor.execute(f"SELECT pg_try_advisory_lock_shared(%s), ({_LIFE})", (claim,))
                claimed, connection.life = cursor.fetchone()
            if not claimed:
                raise Busy(f"The {self.label} is being purged.")

        return PostgreSQLSessions(connect, prepare, self.config, self.label)

    def check(self) -> None:
        with self.administer() as db:
            db.rows("SELECT version()")  # the server looks after its files itself

    def exists(self) -> bool:
        return True  # whether it is there shows on connecting

    @contextmanager
    def administer(self) -> Iterator[PostgreSQLAdministration]:
        with self._administer(lock_timeout=_MIGRATION_PATIENCE * 1000, statement_timeout=0) as db:
            # From version 14 on, a server undoes a long migration soon after the host that ran it was killed.
            check = "client_connection_check_interval"
            db.rows("SELECT set_config(name, '1s', false) FROM pg_settings WHERE name = ?", check)
            yield db

    @contextmanager
    def _administer(self, **settings: int) -> Iterator[PostgreSQLAdministration]:
        db = self._administration(**settings)
        with closing(db.connection):
            yield db

    def _administration(self, **settings: int) -> PostgreSQLAdministration:
        return PostgreSQLAdministration(self._open(self._arguments(**settings)), self.store)

    @contextmanager
    def trial(self) -> Iterator[tuple[PostgreSQLAdministration, PostgreSQLSessions]]:
        # In a transaction that is undone; who serves the store is not to wait long for what is only tried.
        with (
            closing(self.sessions(for_pony=True)) as mapping,
            self._administer(lock_timeout=int(self.config.patience * 1000)) as db,
        ):
            yield db, mapping

    def serving(self) -> AbstractContextManager[None]:
        return nullcontext()  # each connection of a session carries the claim

    def claims(self) -> Claims:
        return Claims(partial(self._administration, statement_timeout=int(self.config.patience * 1000)))

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.refuse_read_only()
        with self._administer() as db:
            give_up = time.monotonic() + _LEAVING
            while not db.rows("SELECT pg_try_advisory_lock(?)", _key(self.store))[0][0]:
                if time.monotonic() > give_up:
                    raise Busy(
                        f"A host serves the {self.label} ({self.config.place}): "
                        "stop it first, or disable the plugin there."
                    )
                time.sleep(_ASK_AGAIN)
            yield

    def erase(self, tables: Iterable[str]) -> None:
        with self.administer() as db:
            db.begin()
            for table in tables:
                db.rows(f"DROP TABLE IF EXISTS {quote(table)} CASCADE")
            if db.has_table(TABLE):
                db.rows(f"DELETE FROM {TABLE} WHERE store = ?", self.store)  # noqa: S608 - our own table's name  # nosec B608
            db.keep()

    def _arguments(self, **settings: int) -> dict[str, Any]:
        """Return the arguments for the driver, those in the URL among them."""
        driver = driver_for(self.store)
        try:
            arguments: dict[str, Any] = driver.extensions.parse_dsn(self.config.url)
        except driver.ProgrammingError as error:
            # libpq's message repeats the URL, password and all.
            raise SetupError(f"The URL of the {self.label} is malformed: {self.config.place}") from error
        if self.config.read_only:
            settings["default_transaction_read_only"] = 1
        options = [arguments.pop("options", ""), "-c timezone=UTC", *(f"-c {k}={v}" for k, v in settings.items())]
        timeout = {"connect_timeout": self.config.connect_timeout}
        return {**_DEFAULTS, **timeout, **arguments, "options": " ".join(options).strip()}

    def _open(self, arguments: dict[str, Any]) -> Any:
        """Return a new connection in autocommit mode."""
        with self._reaching():
            connection = driver_for(self.store).connect(**arguments)
        connection.autocommit = True
        return connection

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Raise what goes wrong with a connection that is not in use yet.

        `Refused` where the server is there and takes none at the moment, `Unreached` where it is not, or hung up.
        """
        try:
            yield
        except driver_for(self.store).Error as error:
            found = translate(error, self.label)
            if isinstance(found, ConnectionLost):
                # libpq gives no code for what a server says before it lets anybody in, but its severity.
                found = (Refused if _SERVER_SAYS.search(str(found)) else Unreached)(str(found))
            raise found or error from error


class PostgreSQLAdministration(Administration, PostgreSQLSession):
    """A connection for administration."""

    def script(self, sql: str) -> None:
        self.rows(sql)

    def _send(self, cursor: Any, sql: str, values: tuple[object, ...] | None = None) -> None:
        cursor.execute(sql, values)

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT to_regclass(?) IS NOT NULL", quote(name))[0][0])

    def columns(self, table: str) -> frozenset[str]:
        found = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped"
        return frozenset(name for (name,) in self.rows(found, quote(table)))

    def may_use(self, table: str, *, writes: bool) -> bool:
        needed = ("SELECT", "INSERT", "UPDATE", "DELETE") if writes else ("SELECT",)
        may = "SELECT has_table_privilege(to_regclass(?)::oid, ?) IS NOT FALSE"
        if not all(self.rows(may, quote(table), privilege)[0][0] for privilege in needed):
            return False
        return not writes or bool(self.rows(_MAY_COUNT, quote(table))[0][0])

    def size(self, tables: Iterable[str]) -> int:
        size = "SELECT coalesce(pg_total_relation_size(to_regclass(?)), 0)"
        return sum(self.rows(size, quote(table))[0][0] for table in tables)

    def begin(self, *, shared: bool = False) -> None:
        self.script("BEGIN")
        self.rows("SELECT pg_advisory_xact_lock(?)", _key(_SHARED if shared else f"migrations of {self._store}"))

    def check_deferred(self) -> None:
        self.script("SET CONSTRAINTS ALL IMMEDIATE")

    def keep(self) -> None:
        self.script("COMMIT")


@cache
def _kind_of_connection(driver: Any) -> type:
    """Return the driver's connections, with a place for which life of the server each belongs to."""
    return type("Connection", (driver.extensions.connection,), {"life": None})


def _key(name: str) -> int:
    """Return an advisory lock's 64-bit key; such keys are per database."""
    return int.from_bytes(hashlib.blake2b(f"plughost store {name}".encode(), digest_size=8).digest(), signed=True)


def driver_for(store: str) -> Any:
    """Return psycopg2; `SetupError` where it is not installed, or can't be."""
    try:
        driver = import_optional("psycopg2", extra="postgresql")
        import_optional("psycopg2.extensions", extra="postgresql")
    except LibraryError as error:
        raise SetupError(f"The store {store} is set to PostgreSQL, whose driver can't be used: {error}") from error
    return driver
