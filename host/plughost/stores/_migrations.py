"""Migrations: numbered files of SQL or Python, each run once, in a transaction, by one process at a time."""

from __future__ import annotations

import hashlib
import re
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from plughost.stores._databases import TABLE
from plughost.stores._errors import Busy, MigrationError, StoreError, Unavailable
from plughost.stores._sqlite import split_statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import structlog

    from plughost._api.declarations import Store
    from plughost.stores._databases import Administration, Database

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
_RECORD: Final = f"INSERT INTO {TABLE} (store, number, name, checksum, applied_at) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - our own table's name  # nosec B608
_APPLIED: Final = f"SELECT number, name, checksum FROM {TABLE} WHERE store = ?"  # noqa: S608 - our own table's name  # nosec B608
_FILE_NAME: Final = re.compile(r"(?P<number>\d{4})_[a-z0-9_]+\.(sql|py)")
_ENDS_TRANSACTION: Final = re.compile(
    r"\s*(begin|commit|end|rollback|start\s+transaction)(\s+(work|transaction))?\s*;?\s*", re.IGNORECASE
)
_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTED_BODY: Final = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a store's schema: its number, from 1 on, and its file, such as `sqlite/0001_products.sql`.

    A file of Python is the same step for each database, and stands above their folders.
    """

    number: int
    dialect: str
    name: str
    sql: str

    @property
    def file(self) -> str:
        """The file's name under the store's folder of migrations."""
        return self.name if self.is_python else f"{self.dialect}/{self.name}"

    @property
    def is_python(self) -> bool:
        """Whether it is a file of Python."""
        return self.name.endswith(".py")

    @property
    def checksum(self) -> str:
        """The SHA-256 of the statements, in hexadecimal, whatever the line ends."""
        return hashlib.sha256("\n".join(self.sql.splitlines()).encode()).hexdigest()

    @property
    def ends_transaction(self) -> bool:
        """Whether a statement of its own begins or ends one; what a trigger or a function holds are none."""
        if self.is_python:
            return False
        statements: Iterable[str] = _QUOTED_BODY.sub("", self.sql).split(";")
        if self.dialect == "sqlite":
            statements = split_statements(self.sql)
        return any(_ENDS_TRANSACTION.fullmatch(_COMMENT.sub("", each)) for each in statements)


def read_migrations(store: Store, dialect: str) -> tuple[Migration, ...]:
    """Return a store's migrations for a database, `sqlite` or `postgresql`, in order.

    Raises:
        MigrationError: There are none, a file is named otherwise, numbers are missing or twice, or a file ends
            the transaction that it runs in.
    """

    def refuse(message: str) -> MigrationError:
        return MigrationError(f"the store {store.name} {message}")

    folder = store.migrations / dialect
    if not folder.is_dir():
        raise refuse(f"has no migrations for {dialect}: there is no folder {folder}")
    migrations: list[Migration] = []
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    files += [file for file in store.migrations.iterdir() if file.name.endswith(".py")]
    for file in sorted(files, key=lambda file: file.name):
        match = _FILE_NAME.fullmatch(file.name)
        if match is None:
            raise refuse(f"has a migration {dialect}/{file.name} that is not named like 0001_what.sql")
        step = Migration(int(match["number"]), dialect, file.name, file.read_text(encoding="utf-8"))
        migrations.append(step)
        if step.number != len(migrations):
            expected = f"number {len(migrations):04} is expected: each number must be there once, from 0001 on"
            raise refuse(f"has a migration {step.file} where {expected}")
        if step.ends_transaction:
            raise refuse(f"has a migration {step.file} that begins or ends a transaction: the host does that")
    if not migrations:
        raise refuse(f"has no migrations for {dialect}: {folder} holds no 0001_what.sql")
    unknown = sorted(set(store.breaking) - {each.number for each in migrations})
    if unknown:
        raise refuse(f"calls its migration {unknown[0]:04} breaking, and has none of this number")
    return tuple(migrations)


class Place(NamedTuple):
    """A declared store, its plugin, its database, the migrations that the code has, and who is told of them."""

    store: Store
    plugin: str
    database: Database
    migrations: Sequence[Migration]
    logger: structlog.stdlib.BoundLogger


@dataclass(frozen=True, slots=True)
class Pending:
    """What a store's schema lacks: the migrations that are to be applied, in order.

    Attributes:
        schema: The number of its newest applied migration; 0 where none was.
        breaking: The file of the first of them that older code can't live with; None where it can with all, or where
            there is no schema yet that older code could use.
        edited: The files of applied ones that are not as they were then. That may be as harmless as a corrected
            comment, so it is told, not refused.
    """

    schema: int
    steps: tuple[Migration, ...]
    breaking: str | None
    edited: tuple[str, ...]


def pending(place: Place, db: Administration) -> Pending:
    """Return what a store's schema lacks.

    Raises:
        MigrationError: It is newer than the code, or what it lacks may not be applied by this host.
    """
    store, migrations = place.store, place.migrations
    found = db.rows(_APPLIED, store.name) if db.has_table(TABLE) else ()
    applied = {number: (name, checksum) for number, name, checksum in found}
    schema = max(applied, default=0)
    refuse_newer(store, len(migrations), schema)
    steps = tuple(step for step in migrations if step.number not in applied)
    if steps and place.database.config.read_only:
        raise MigrationError(
            f"the {place.database.label} has schema {schema}, and its plugin needs {len(migrations)}, but this host "
            "only reads it (stores.read_only): let a host that writes it apply the migrations first"
        )
    breaking = (step.file for step in steps if step.number in store.breaking)
    known = [step for step in migrations if step.number in applied]
    edited = tuple(step.file for step in known if applied[step.number] != (step.name, step.checksum))
    return Pending(schema, steps, next(breaking, None) if schema else None, edited)


def apply(steps: Iterable[Migration], store: Store, db: Administration) -> None:
    """Apply migrations in a transaction that was begun; nobody else sees them before it is committed.

    Raises:
        MigrationError: One failed, or a constraint does not hold afterwards; the message names the database's reason.
    """
    what = ""
    try:
        for step in steps:
            what = f"the migration {step.file} failed"
            if step.is_python:
                _run_python(step, db)
            else:
                db.script(step.sql)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            db.rows(_RECORD, store.name, step.number, step.name, step.checksum, now)
        what = f"the migrations of the store {store.name} break a constraint"
        db.check_deferred()  # of several stores, none is to fail once the first was committed
    except (Unavailable, Busy):
        raise
    except StoreError as error:
        raise MigrationError(f"{what}, and nothing of it was kept: {error}") from error


def _run_python(step: Migration, db: Administration) -> None:
    """Run the function `migrate` of a file in the transaction of the migrations, for data that SQL can't change."""
    names: dict[str, Any] = {"__name__": step.file, "__file__": step.file}
    try:
        exec(compile(step.sql, step.file, "exec"), names)  # noqa: S102 - the plugin's own code, as its modules are  # nosec B102
        migrate = names.get("migrate")
        if not callable(migrate):
            raise StoreError("it has no function migrate(session)")
        migrate(db)
    except StoreError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == step.file]
        raise StoreError(f"{type(error).__name__}{f' at line {lines[-1]}' if lines else ''}: {error}") from error


def refuse_newer(store: Store, known: int, found: int) -> None:
    """Raise a `MigrationError` where the database has a migration of a higher number than the code knows."""
    if found > known:
        raise MigrationError(
            f"the store {store.name} has schema {found}, and the installed version of its plugin knows "
            f"no newer one than {known}: install the newer plugin again, or restore a backup"
        )
