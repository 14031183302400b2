"""Migrations: numbered SQL files, each run once, in a transaction, by one process at a time."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from plughost.logs import silent_logger
from plughost.stores.errors import Busy, MigrationError, StoreError, Unavailable
from plughost.stores.sqlite import split_statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import structlog

    from plughost.declarations import Store
    from plughost.stores.engines import Administration, Engine

TABLE: Final = "plughost_migrations"
_MAKE_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    store VARCHAR(255) NOT NULL,
    number INTEGER NOT NULL,
    name VARCHAR(255) NOT NULL,
    checksum VARCHAR(64) NOT NULL,
    applied_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (store, number)
);
"""
_FILE_NAME: Final = re.compile(r"(?P<number>\d{4})_(?P<what>[a-z0-9_]+)\.sql")
_ENDS_TRANSACTION: Final = re.compile(
    r"\s*(begin|commit|end|rollback|start\s+transaction)(\s+(work|transaction))?\s*;?\s*", re.IGNORECASE
)
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTED_BODY: Final = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a store's schema.

    Attributes:
        number: Its place, counted from 1.
        name: Its file's name, such as `0001_products.sql`.
        sql: The statements.
    """

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the statements, in hexadecimal, whatever the line ends."""
        return hashlib.sha256("\n".join(self.sql.splitlines()).encode()).hexdigest()


def read_migrations(store: Store, engine: str) -> tuple[Migration, ...]:
    """Return a store's migrations for an engine, in order.

    Args:
        store: The declaration.
        engine: The name of the folder, `sqlite` or `postgresql`.

    Raises:
        MigrationError: There are none, a file is named otherwise, numbers are missing or twice, or a file ends
            the transaction that it runs in.
    """
    folder = store.migrations / engine
    if not folder.is_dir():
        message = f"the store {store.name} has no migrations for {engine}: there is no folder {folder}"
        raise MigrationError(message)
    migrations = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".sql"):
            continue
        match = _FILE_NAME.fullmatch(file.name)
        if match is None:
            message = f"the migration {engine}/{file.name} of the store {store.name} is not named like 0001_what.sql"
            raise MigrationError(message)
        migrations.append(Migration(int(match["number"]), file.name, file.read_text(encoding="utf-8")))
    for expected, migration in enumerate(migrations, start=1):
        if migration.number != expected:
            message = (
                f"the store {store.name} has a migration {engine}/{migration.name} "
                f"where number {expected:04} is expected: each number must be there once, from 0001 on"
            )
            raise MigrationError(message)
        if any(_ENDS_TRANSACTION.fullmatch(_COMMENT.sub("", each)) for each in _statements(migration.sql, engine)):
            message = (
                f"the migration {engine}/{migration.name} of the store {store.name} begins or ends a transaction: "
                "the host does that"
            )
            raise MigrationError(message)
    if not migrations:
        message = f"the store {store.name} has no migrations for {engine}: {folder} holds no 0001_what.sql"
        raise MigrationError(message)
    return tuple(migrations)


def _statements(sql: str, engine: str) -> Iterable[str]:
    """Return the statements of a migration; what a trigger or a function holds are none of its own."""
    return split_statements(sql) if engine == "sqlite" else _QUOTED_BODY.sub("", sql).split(";")


def migrate(store: Store, engine: Engine, logger: structlog.stdlib.BoundLogger | None = None) -> int:
    """Bring a store's schema to the newest that the code knows, and return its number.

    Any number of processes may do so at once: each step runs under a lock, once.

    Args:
        store: The declaration.
        engine: Where the store is.
        logger: Told about an edited migration.

    Raises:
        MigrationError: A step failed, of which nothing was kept; or the database has a newer schema.
        Unavailable: The database cannot be reached.
        Busy: Another process migrates and takes too long.
        SetupError: The engine's driver is missing.
    """
    logger = logger or silent_logger()
    migrations = read_migrations(store, engine.config.engine)
    with engine.administer() as db:
        while True:
            with db.locked():
                db.script(_MAKE_TABLE)
                step = _next(store, engine, migrations, db, logger)
                if step is None:
                    return len(migrations)
                _apply(step, store, engine, db)


def schema_number(store: str, db: Administration) -> int:
    """Return the number of a store's newest applied migration, 0 where there is none.

    Args:
        store: The store's name.
        db: The database.
    """
    if not db.has_table(TABLE):
        return 0
    return int(db.rows(f"SELECT coalesce(max(number), 0) FROM {TABLE} WHERE store = ?", store)[0][0])  # noqa: S608 - our own table's name


def refuse_newer(store: Store, known: int, found: int) -> None:
    """Refuse a schema that is newer than the code.

    Args:
        store: The declaration.
        known: The number of the newest migration that the code has.
        found: The number of the newest that the database has.

    Raises:
        MigrationError: The second is higher; the message names both.
    """
    if found > known:
        message = (
            f"the store {store.name} has schema {found}, and the installed version of its plugin knows "
            f"no newer one than {known}: install the newer plugin again, or restore a backup"
        )
        raise MigrationError(message)


def _next(
    store: Store,
    engine: Engine,
    migrations: Sequence[Migration],
    db: Administration,
    logger: structlog.stdlib.BoundLogger,
) -> Migration | None:
    applied = {
        number: (name, checksum)
        for number, name, checksum in db.rows(
            f"SELECT number, name, checksum FROM {TABLE} WHERE store = ?",  # noqa: S608 - our own table's name
            store.name,
        )
    }
    refuse_newer(store, len(migrations), max(applied, default=0))
    pending = next((step for step in migrations if step.number not in applied), None)
    if pending is None:
        # An edit may be as harmless as a corrected comment, so it is told, not refused.
        for step in migrations:
            if applied[step.number] != (step.name, step.checksum):
                logger.warning(
                    "a migration was edited after it had been applied; the database keeps what it did then",
                    store=store.name,
                    file=f"{engine.config.engine}/{step.name}",
                )
    return pending


def _apply(step: Migration, store: Store, engine: Engine, db: Administration) -> None:
    try:
        db.script(step.sql)
        db.rows(
            f"INSERT INTO {TABLE} (store, number, name, checksum, applied_at) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - our own table's name
            store.name,
            step.number,
            step.name,
            step.checksum,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
    except (Unavailable, Busy):
        raise
    except StoreError as error:
        message = f"the migration {engine.config.engine}/{step.name} failed, and nothing of it was kept: {error}"
        raise MigrationError(message) from error
