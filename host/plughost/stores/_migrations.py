"""Migrations: numbered files of SQL or Python, each run once, in a transaction, by one process at a time."""

from __future__ import annotations

import hashlib
import re
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from plughost.stores._config import SQLITE
from plughost.stores._errors import Busy, MigrationError, StoreError, Unavailable
from plughost.stores._sessions import TABLE
from plughost.stores._sqlite import split_statements

if TYPE_CHECKING:
    from collections.abc import Iterable

    import structlog

    from plughost._api.declarations import Store
    from plughost.stores._databases import AdminSession, Database

CREATE_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    store VARCHAR(255) NOT NULL,
    number INTEGER NOT NULL,
    name VARCHAR(255) NOT NULL,
    checksum VARCHAR(64) NOT NULL,
    applied_at VARCHAR(32) NOT NULL,
    PRIMARY KEY (store, number)
);
"""
_INSERT_APPLIED: Final = f"INSERT INTO {TABLE} (store, number, name, checksum, applied_at) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - our own table's name  # nosec B608
_SELECT_APPLIED: Final = f"SELECT number, name, checksum FROM {TABLE} WHERE store = ?"  # noqa: S608 - our own table's name  # nosec B608
_FILE_NAME: Final = re.compile(r"(?P<number>\d{4})_[a-z0-9_]+\.(sql|py)")
_ENDS_TRANSACTION: Final = re.compile(
    r"\s*(begin|commit|end|rollback|start\s+transaction)(\s+(work|transaction))?\s*;?\s*", re.IGNORECASE
)
COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTED_BODY: Final = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a store's schema: its number, from 1 on, and its file's name and content.

    The `file` is its path in the folder of migrations, such as `sqlite/0001_products.sql`. A Python file is the same
    step for each database, and lies above their folders.
    """

    number: int
    name: str
    file: str
    content: str

    @property
    def checksum(self) -> str:
        """The SHA-256 of the content, in hexadecimal, whatever the line ends."""
        return hashlib.sha256("\n".join(self.content.splitlines()).encode()).hexdigest()


def read_migrations(store: Store, dialect: str) -> tuple[Migration, ...]:
    """Return a store's migrations for a database, `sqlite` or `postgresql`, in order.

    Raises:
        MigrationError: There are none, a file's name is wrong, a number is missing or twice, or a file can't be read,
            or ends the transaction that it runs in.
    """

    def refuse(message: str) -> MigrationError:
        return MigrationError(f"the store {store.name} {message}")

    migrations: list[Migration] = []
    for name, content in _read_files(store, dialect).items():
        match, is_sql = _FILE_NAME.fullmatch(name), name.endswith(".sql")
        path = f"{dialect}/{name}" if is_sql else name
        if match is None:
            raise refuse(f"has a migration {path} that is not named like 0001_what{'.sql' if is_sql else '.py'}")
        step = Migration(int(match["number"]), name, path, content)
        migrations.append(step)
        if step.number != len(migrations):
            twin = next((each.file for each in migrations[:-1] if each.number == step.number), None)
            found = f"beside {twin}" if twin else f"where number {len(migrations):04} is expected"
            raise refuse(f"has a migration {step.file} {found}: each number must be there once, from 0001 on")
        if is_sql and _ends_transaction(step.content, dialect):
            raise refuse(f"has a migration {step.file} that begins or ends a transaction: the host does that")
    if not migrations:
        raise refuse(f"has no migrations for {dialect}: {store.migrations / dialect} holds no 0001_what.sql")
    unknown = sorted(set(store.breaking) - {each.number for each in migrations})
    if unknown:
        raise refuse(f"calls its migration {unknown[0]:04} breaking, and has none of this number")
    return tuple(migrations)


def _read_files(store: Store, dialect: str) -> dict[str, str]:
    """Return the content of each file of migrations for a database, by name, in order. Raises as `read_migrations`."""
    folder, name = store.migrations / dialect, dialect
    contents: dict[str, str] = {}
    try:
        if not folder.is_dir():
            raise MigrationError(f"the store {store.name} has no migrations for {dialect}: there is no folder {folder}")
        files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
        files += [file for file in store.migrations.iterdir() if file.name.endswith(".py")]
        for file in sorted(files, key=lambda file: file.name):
            name = file.name
            contents[name] = file.read_text(encoding="utf-8")
            if "\0" in contents[name]:
                raise ValueError("it has the character U+0000")
    except (OSError, ValueError) as error:
        raise MigrationError(f"the store {store.name} has migrations that can't be read: {name}: {error}") from error
    return contents


def _ends_transaction(sql: str, dialect: str) -> bool:
    """Return whether a statement begins or ends a transaction. The bodies of triggers and functions don't count."""
    statements = split_statements(sql) if dialect == SQLITE else _QUOTED_BODY.sub("", sql).split(";")
    return any(_ENDS_TRANSACTION.fullmatch(COMMENT.sub("", each)) for each in statements)


@dataclass(frozen=True)
class MigrationTarget:
    """A store to migrate: its declaration, its database, and a logger."""

    store: Store
    database: Database
    logger: structlog.stdlib.BoundLogger

    @cached_property
    def migrations(self) -> tuple[Migration, ...]:
        """The code's migrations, read once: an upgrade in place replaces the files."""
        return read_migrations(self.store, self.database.config.dialect)


@dataclass(frozen=True, slots=True)
class PendingMigrations:
    """The migrations that a store's schema lacks, in order.

    Attributes:
        schema: The newest applied one's number. 0 if there is none.
        breaking: The file of the first one that older code can't live with. None if there is none, or no schema yet.
        edited: Files that were edited after they had been applied. That is not refused, since a corrected comment does
            no harm.
    """

    schema: int
    steps: tuple[Migration, ...]
    breaking: str | None
    edited: tuple[str, ...]


def find_pending(target: MigrationTarget, db: AdminSession) -> PendingMigrations:
    """Return the migrations that a store's schema lacks.

    Raises:
        MigrationError: The schema is newer than the code, or this host may not apply what it lacks.
    """
    store, migrations = target.store, target.migrations
    found = db.rows(_SELECT_APPLIED, store.name) if db.has_table(TABLE) else ()
    applied = {number: (name, checksum) for number, name, checksum in found}
    schema = max(applied, default=0)
    refuse_newer(store, len(migrations), schema)
    steps = tuple(step for step in migrations if step.number not in applied)
    if steps and target.database.config.read_only:
        raise MigrationError(
            f"the {target.database.label} has schema {schema}, and its plugin needs {len(migrations)}, but this host "
            "only reads it (stores.read_only): let a host that writes it apply the migrations first"
        )
    breaking = (step.file for step in steps if step.number in store.breaking)
    known = [step for step in migrations if step.number in applied]
    edited = tuple(step.file for step in known if applied[step.number] != (step.name, step.checksum))
    return PendingMigrations(schema, steps, next(breaking, None) if schema else None, edited)


def apply_migrations(steps: Iterable[Migration], store: Store, db: AdminSession) -> None:
    """Apply migrations in the open transaction.

    Raises:
        MigrationError: One failed, or a constraint is broken afterwards. The message has the database's reason.
    """
    what = ""
    try:
        for step in steps:
            what = f"the migration {step.file} failed"
            if step.file.endswith(".py"):
                _run_python(step, db)
            else:
                db.script(step.content)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            db.rows(_INSERT_APPLIED, store.name, step.number, step.name, step.checksum, now)
        what = f"the migrations of the store {store.name} break a constraint"
        db.check_deferred()  # so that no store fails once the first of several was committed
    except (Unavailable, Busy):
        raise
    except StoreError as error:
        raise MigrationError(f"{what}, and nothing of it was kept: {error}") from error


def _run_python(step: Migration, db: AdminSession) -> None:
    """Run a file's function `migrate` in the transaction of the migrations, for changes that SQL can't make."""
    names: dict[str, Any] = {"__name__": step.file, "__file__": step.file}
    try:
        exec(compile(step.content, step.file, "exec"), names)  # noqa: S102 - the plugin's own code, as its modules are  # nosec B102
        migrate = names.get("migrate")
        if not callable(migrate):
            raise StoreError("it has no function migrate(session)")
        migrate(db)
    except StoreError:
        raise
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == step.file]
        raise StoreError(f"{type(error).__name__}{f' at line {lines[-1]}' if lines else ''}: {error}") from error


def refuse_newer(
    store: Store, known: int, found: int, todo: str = "install the newer plugin again, or restore a backup"
) -> None:
    """Raise a `MigrationError` if the schema that was `found` is newer than the one `known` to the code."""
    if found > known:
        raise MigrationError(
            f"the store {store.name} has schema {found}, and the installed version of its plugin knows "
            f"no newer one than {known}: {todo}"
        )
