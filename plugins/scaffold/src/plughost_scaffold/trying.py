"""Try migrations: from empty, and from each earlier version with rows in its tables, on databases of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from plughost.stores import StoreError, StoresConfig, open_stores
from plughost.testing import fresh_postgresql
from plughost_scaffold.filling import fill

if TYPE_CHECKING:
    from plughost import Store


_NAMES: Final = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


@dataclass(frozen=True, slots=True)
class Line:
    """What there is to say of a try.

    Attributes:
        text: For people.
        failed: Whether a migration failed.
    """

    text: str
    failed: bool = False


def try_migrations(plugin: str, store: Store[Any], dialect: str) -> Iterator[Line]:
    """Try all migrations of a store on one kind of database, and say what came of it."""
    label = f"{store.name} on {_NAMES[dialect]}"
    steps = _steps(store, dialect)
    failures = 0
    try:
        for number, other in _lacking(store, dialect):
            failures += 1
            advice = f"write {dialect}/{number}_<what>.sql, which may be a comment alone"
            yield Line(f"{label}: there is no {number}, which {_NAMES[other]} has: {advice}", failed=True)
        for earlier in range(max(1, len(steps))):
            for line in _upgrade(plugin, store, dialect, steps[:earlier]):
                failures += line.failed
                yield replace(line, text=f"{label}, from {_version(steps, earlier)}: {line.text}")
    except pytest.skip.Exception as skipped:
        yield Line(f"{label}: not tried: {skipped}")
        return
    if not failures:
        starts = ", ".join(["empty", *(name[:4] for name in steps[:-1])])
        yield Line(f"{label}: {len(steps)} {'migration' if len(steps) == 1 else 'migrations'}, from {starts}: all well")


def _steps(store: Store[Any], dialect: str) -> list[str]:
    """Return the names of the files for one kind of database, in their order."""
    folder = store.migrations / dialect
    own = folder.iterdir() if folder.is_dir() else ()
    return sorted({each.name for each in (*own, *store.migrations.iterdir()) if each.name.endswith((".sql", ".py"))})


def _lacking(store: Store[Any], dialect: str) -> Iterator[tuple[str, str]]:
    """Return the numbers after the last one of this kind of database that another one has, and which that is."""
    last = max((name[:4] for name in _steps(store, dialect)), default="")
    for other in _NAMES.keys() - {dialect} if last else ():
        yield from ((name[:4], other) for name in _steps(store, other) if name[:4] > last)


def _version(steps: list[str], earlier: int) -> str:
    return f"{steps[earlier - 1][:4]} with rows" if earlier else "empty"


def _upgrade(plugin: str, store: Store[Any], dialect: str, earlier: list[str]) -> Iterator[Line]:
    """Make an earlier version of a store with rows, then let the whole one migrate it."""
    with tempfile.TemporaryDirectory(prefix="plughost-migrate-") as folder, _database(dialect, Path(folder)) as config:
        try:
            if earlier:
                older = replace(store, migrations=_copied(store, dialect, earlier, Path(folder)), breaking=())
                for table, reason in _with_rows(plugin, older, config).items():
                    yield Line(f"no rows could be put into {table}: {reason}")
            _open(plugin, store, config)
        except StoreError as error:
            yield Line(str(error), failed=True)


def _with_rows(plugin: str, store: Store[Any], config: StoresConfig) -> dict[str, str]:
    stores = open_stores({plugin: [replace(store, entities=None)]}, config)
    try:
        for error in stores.failures.values():
            raise error
        return fill(stores[store.name])
    finally:
        stores.close()


def _open(plugin: str, store: Store[Any], config: StoresConfig) -> None:
    stores = open_stores({plugin: [store]}, config)
    stores.close()
    for error in stores.failures.values():
        raise error


def _copied(store: Store[Any], dialect: str, names: list[str], folder: Path) -> Path:
    """Copy some migrations of a store."""
    target = folder / "earlier"
    (target / dialect).mkdir(parents=True)
    for name in names:
        parts = (name,) if name.endswith(".py") else (dialect, name)
        target.joinpath(*parts).write_text(store.migrations.joinpath(*parts).read_text(encoding="utf-8"))
    return target


@contextmanager
def _database(dialect: str, folder: Path) -> Iterator[StoresConfig]:
    if dialect == "sqlite":
        yield StoresConfig(folder=folder)
        return
    with fresh_postgresql() as url:
        yield StoresConfig(folder=folder, url=url)
