"""Check migrations from empty and from each earlier version with sample rows, each in a database of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from plughost.stores import StoreError
from plughost.testing import fresh_postgresql, open_store
from plughost_scaffold.sample_rows import insert_sample_rows

if TYPE_CHECKING:
    from plughost import Store

_LABELS: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of a check's report.

    Attributes:
        text: For people.
        failed: Whether a migration failed.
        empty: Whether a table stayed without rows, so that migrations were tried on less than an operator has.
    """

    text: str
    failed: bool = False
    empty: bool = False


def check_migrations(store: Store[Any], dialect: str) -> Iterator[CheckResult]:
    """Check all migrations of a store on one kind of database, and yield the results."""
    label = f"{store.name} on {_LABELS[dialect]}"
    steps = _migration_files(store, dialect)
    failures, empty = 0, False
    try:
        for number, other in _missing_numbers(store, dialect):
            failures += 1
            advice = f"write {dialect}/{number}_<what>.sql, which may be a comment alone"
            yield CheckResult(f"{label}: there is no {number}, which {_LABELS[other]} has: {advice}", failed=True)
        for earlier in range(max(1, len(steps))):
            start = f"{steps[earlier - 1][:4]} with rows" if earlier else "empty"
            for result in _check_upgrade(store, dialect, steps[:earlier]):
                failures, empty = failures + result.failed, empty or result.empty
                yield replace(result, text=f"{label}, from {start}: {result.text}")
    except pytest.skip.Exception as skipped:
        yield CheckResult(f"{label}: not tried: {skipped}")
        return
    if not failures:
        starts = ", ".join(["empty", *(name[:4] for name in steps[:-1])])
        outcome = "no migration failed, but not every table had rows: see above" if empty else "all well"
        yield CheckResult(
            f"{label}: {len(steps)} {'migration' if len(steps) == 1 else 'migrations'}, from {starts}: {outcome}"
        )


def _migration_files(store: Store[Any], dialect: str) -> list[str]:
    """Return the names of the migration files for one kind of database, in order."""
    folder = store.migrations / dialect
    sql_files = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        {each.name for each in (*sql_files, *store.migrations.iterdir()) if each.name.endswith((".sql", ".py"))}
    )


def _missing_numbers(store: Store[Any], dialect: str) -> Iterator[tuple[str, str]]:
    """Yield each number that another kind of database has after this one's last, with that other kind."""
    last = max((name[:4] for name in _migration_files(store, dialect)), default="")
    for other in _LABELS.keys() - {dialect} if last else ():
        yield from ((name[:4], other) for name in _migration_files(store, other) if name[:4] > last)


def _check_upgrade(store: Store[Any], dialect: str, earlier: list[str]) -> Iterator[CheckResult]:
    """Create an earlier version of a store with sample rows, then apply the remaining migrations."""
    with tempfile.TemporaryDirectory(prefix="plughost-migrate-") as folder, _database(dialect) as url:
        try:
            if earlier:
                migrations = _copy_migrations(store, dialect, earlier, Path(folder))
                # Later steps may create declared tables, whose absence would count as damage.
                older = replace(store, migrations=migrations, tables=(), breaking=(), entities=None)
                with open_store(older, Path(folder), url) as opened:
                    failures = insert_sample_rows(opened)
                for table, reason in failures.items():
                    yield CheckResult(f"no rows could be put into {table}: {reason}", empty=True)
            with open_store(store, Path(folder), url):
                pass
        except StoreError as error:
            yield CheckResult(str(error), failed=True)


def _copy_migrations(store: Store[Any], dialect: str, names: list[str], folder: Path) -> Path:
    """Copy some migrations of a store into a folder and return their new parent."""
    target = folder / "earlier"
    (target / dialect).mkdir(parents=True)
    for name in names:
        parts = (name,) if name.endswith(".py") else (dialect, name)
        target.joinpath(*parts).write_text(store.migrations.joinpath(*parts).read_text(encoding="utf-8"))
    return target


def _database(dialect: str) -> AbstractContextManager[str | None]:
    """Return a context with the URL of a fresh database; of none on SQLite."""
    return fresh_postgresql() if dialect == "postgresql" else nullcontext()
