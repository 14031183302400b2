"""Migrations: numbered SQL files, each run once, in a transaction, by one process at a time."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from plughost.stores._errors import Busy, MigrationError, StoreError, Unavailable
from plughost.stores._sqlite import split_statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import structlog

    from plughost._api.declarations import Store
    from plughost.stores._engines import Administration

TABLE: Final = "plughost_migrations"
MAKE_TABLE: Final = f"""
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
    unknown = sorted(set(store.breaking) - {each.number for each in migrations})
    if migrations and unknown:
        message = f"the store {store.name} calls its migration {unknown[0]:04} breaking, and has none of this number"
        raise MigrationError(message)
    if not migrations:
        message = f"the store {store.name} has no migrations for {engine}: {folder} holds no 0001_what.sql"
        raise MigrationError(message)
    return tuple(migrations)


def _statements(sql: str, engine: str) -> Iterable[str]:
    """Return the statements of a migration; what a trigger or a function holds are none of its own."""
    return split_statements(sql) if engine == "sqlite" else _QUOTED_BODY.sub("", sql).split(";")


@dataclass(frozen=True, slots=True)
class Pending:
    """What a store's schema lacks.

    Attributes:
        schema: The number of its newest applied migration; 0 where none was.
        steps: The migrations that are to be applied, in order.
        breaking: The file of the first of them that older code can't live with; None where it can with all, or where
            there is no schema yet that older code could use.
    """

    schema: int
    steps: tuple[Migration, ...]
    breaking: str | None


def pending(
    store: Store,
    migrations: Sequence[Migration],
    engine: str,
    db: Administration,
    logger: structlog.stdlib.BoundLogger,
) -> Pending:
    """Return what a store's schema lacks of the newest that the code knows.

    Args:
        store: The declaration.
        migrations: What `read_migrations` returned.
        engine: `sqlite` or `postgresql`.
        db: The database.
        logger: Told about an edited migration.

    Raises:
        MigrationError: The database has a newer schema.
        Unavailable: The database cannot be reached.
    """
    applied: dict[int, tuple[str, str]] = {}
    if db.has_table(TABLE):
        found = db.rows(f"SELECT number, name, checksum FROM {TABLE} WHERE store = ?", store.name)  # noqa: S608 - our own table's name  # nosec B608
        applied = {number: (name, checksum) for number, name, checksum in found}
    schema = max(applied, default=0)
    refuse_newer(store, len(migrations), schema)
    steps = tuple(step for step in migrations if step.number not in applied)
    if not steps:
        # An edit may be as harmless as a corrected comment, so it is told, not refused.
        for step in migrations:
            if applied[step.number] != (step.name, step.checksum):
                logger.warning(
                    "a migration was edited after it had been applied; the database keeps what it did then",
                    store=store.name,
                    file=f"{engine}/{step.name}",
                )
    breaking = (f"{engine}/{step.name}" for step in steps if step.number in store.breaking)
    return Pending(schema, steps, next(breaking, None) if schema else None)


def apply(steps: Iterable[Migration], store: str, engine: str, db: Administration) -> None:
    """Apply migrations in a transaction that was begun; nobody else sees them before it is committed.

    Args:
        steps: The migrations.
        store: The store's name.
        engine: `sqlite` or `postgresql`.
        db: The database.

    Raises:
        MigrationError: One failed, or a constraint does not hold afterwards; the message names the database's reason.
        Unavailable: The database cannot be reached or written.
        Busy: Others held what it needs for too long.
    """
    for step in steps:
        try:
            db.script(step.sql)
            db.rows(
                f"INSERT INTO {TABLE} (store, number, name, checksum, applied_at) VALUES (?, ?, ?, ?, ?)",  # noqa: S608 - our own table's name  # nosec B608
                store,
                step.number,
                step.name,
                step.checksum,
                datetime.now(UTC).isoformat(timespec="seconds"),
            )
        except (Unavailable, Busy):
            raise
        except StoreError as error:
            message = f"the migration {engine}/{step.name} failed, and nothing of it was kept: {error}"
            raise MigrationError(message) from error
    try:
        db.check_deferred()  # of several stores, none is to fail once the first was committed
    except (Unavailable, Busy):
        raise
    except StoreError as error:
        message = f"the migrations of the store {store} break a constraint, and nothing of them was kept: {error}"
        raise MigrationError(message) from error


def schema_number(store: str, db: Administration) -> int:
    """Return the number of a store's newest applied migration, 0 where there is none.

    Args:
        store: The store's name.
        db: The database.
    """
    if not db.has_table(TABLE):
        return 0
    return int(db.rows(f"SELECT coalesce(max(number), 0) FROM {TABLE} WHERE store = ?", store)[0][0])  # noqa: S608 - our own table's name  # nosec B608


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
