"""Migrations: each step is applied once, completely, by one process at a time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from pony.orm import core
from tests.stores.conftest import PRODUCTS, Declare, product_entities

from plughost._logging import silent_logger
from plughost.stores import Busy, MigrationError, SetupError, StoreError, Unavailable
from plughost.stores._config import StoresConfig
from plughost.stores._databases import database_for
from plughost.stores._manager import Stores, open_stores
from plughost.stores._migrations import MigrationTarget, read_migrations
from plughost.stores._opening import StoreHandle
from plughost.stores._sqlite import split_statements

if TYPE_CHECKING:
    from plughost._api.declarations import Store
    from plughost.stores._databases import Database

NOTES = "CREATE TABLE notes (id {identity}, text VARCHAR(20) NOT NULL);"
AN_EMPTY_NOTE = "INSERT INTO notes (text) VALUES ('');"


def migrate(store: Store, database: Database, logger: Any = None) -> int:
    """Migrate a store, and return its schema."""
    opened = StoreHandle(MigrationTarget(store, database, logger or silent_logger()))
    opened.commit()
    opened.close()
    return opened.schema


def rows(config: StoresConfig, sql: str, store: str = "catalog") -> list[tuple[Any, ...]]:
    """Return a query's rows of a store's database."""
    with database_for(store, config.of(store)).administer() as db:
        return db.rows(sql)


def test_the_first_and_later_steps_run_once_and_in_order(config: StoresConfig, declare: Declare) -> None:
    """A newer version of a plugin applies only its new steps."""
    database = database_for("catalog", config.of("catalog"))
    assert migrate(declare(NOTES), database) == 1
    assert migrate(declare(NOTES, AN_EMPTY_NOTE), database) == 2
    assert migrate(declare(NOTES, AN_EMPTY_NOTE), database) == 2
    assert rows(config, "SELECT count(*) FROM notes") == [(1,)]
    assert rows(config, "SELECT store, number, name FROM plughost_migrations ORDER BY number") == [
        ("catalog", 1, "0001_step.sql"),
        ("catalog", 2, "0002_step.sql"),
    ]


def test_a_failing_step_leaves_nothing_behind_and_names_store_and_file(config: StoresConfig, declare: Declare) -> None:
    """All pending steps are applied or none: the older version of the plugin may have to continue."""
    store = declare(NOTES, f"CREATE TABLE more (id {{identity}}); {AN_EMPTY_NOTE} SELECT nonsense;", tables=("notes",))
    with open_stores_of(store, config) as failures:
        message = str(failures["plugin"])
    for part in ("store catalog", f"{config.of('catalog').dialect}/0002_step.sql", "nonsense"):
        assert part in message
    with database_for("catalog", config.of("catalog")).administer() as db:
        assert (db.schema_number(), db.has_table("more"), db.has_table("notes")) == (0, False, False)


@contextmanager
def open_stores_of(store: Store, config: StoresConfig) -> Iterator[Mapping[str, SetupError]]:
    """Open a store, close it afterwards, and return the failures."""
    stores = open_stores({"plugin": (store,)}, config)
    try:
        yield stores.failures
    finally:
        stores.close()


def test_a_newer_schema_is_refused_with_both_numbers(config: StoresConfig, declare: Declare) -> None:
    """An older version of a plugin doesn't change the data of a newer one."""
    database = database_for("catalog", config.of("catalog"))
    migrate(declare(NOTES, AN_EMPTY_NOTE, AN_EMPTY_NOTE), database)
    with pytest.raises(MigrationError, match=r"has schema 3, .* knows no newer one than 1"):
        migrate(declare(NOTES), database)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (["0001_a.sql", "0003_c.sql"], "0003_c.sql where number 0002 is expected"),
        (["0001_a.sql", "0001_b.sql"], "0001_b.sql beside sqlite/0001_a.sql"),
        (["0002_b.sql"], "0002_b.sql where number 0001 is expected"),
        (["first.sql"], "migration sqlite/first.sql that is not named like 0001_what.sql"),
        (["../__init__.py"], "migration __init__.py that is not named like 0001_what.py"),
        ([], "no migrations for sqlite"),
    ],
    ids=["gap", "twice", "no first", "odd name", "package", "none"],
)
def test_gaps_and_duplicates_in_numbers_are_refused(declare: Declare, files: list[str], reason: str) -> None:
    """A step that would never run or whose position is unclear is found before any step runs."""
    store = declare(*((file, "SELECT 1;") for file in files))
    with pytest.raises(MigrationError, match=reason):
        read_migrations(store, "sqlite")


def test_other_files_beside_migrations_are_ignored(declare: Declare) -> None:
    """Only files of SQL and Python count, not those that an editor leaves."""
    store = declare(NOTES, ("0001_step.sql~", NOTES), ("README.md", "What is here."))
    assert [step.name for step in read_migrations(store, "sqlite")] == ["0001_step.sql"]


def test_an_unknown_breaking_migration_is_refused(declare: Declare) -> None:
    """A wrong number would let older code use a schema with which it doesn't work."""
    with pytest.raises(MigrationError, match="calls its migration 0002 breaking, and has none of this number"):
        read_migrations(replace(declare(NOTES), breaking=(1, 2)), "sqlite")


def test_a_new_store_locks_out_no_other_host(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, declare: Declare
) -> None:
    """Without a schema no older code can use it, whatever the migrations declare."""
    with database_for("catalog", sqlite_config.of("catalog")).shared_claim():
        assert opening(sqlite_config, replace(declare(NOTES), breaking=(1,)))["catalog"].schema == 1


@pytest.mark.parametrize(
    ("step", "entities", "reason"),
    [
        ("CREATE nonsense;", None, "0002_step.sql failed, and nothing of it was kept"),
        ("ALTER TABLE products DROP COLUMN name;", product_entities, "do not fit its tables"),
    ],
    ids=["SQL", "entities"],
)
def test_a_breaking_migration_is_previewed_while_another_host_serves(
    opening: Callable[..., Stores],
    config: StoresConfig,
    plain_products: Store,
    declare: Declare,
    *,
    step: str,
    entities: Any,
    reason: str,
) -> None:
    """A host that will replace another one learns of a failure before the other has stopped."""
    opening(config, plain_products)
    newer = declare(PRODUCTS, step, entities=entities, tables=("products",))
    assert reason in str(opening(config, replace(newer, breaking=(2,))).failures["catalog-plugin"])


def test_a_step_without_room_is_applied_later(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, declare: Declare
) -> None:
    """The plugin doesn't fail: the store is unavailable until there is room."""
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999) SELECT i FROM n"
    fill = f"PRAGMA max_page_count = 10; INSERT INTO notes (text) {many};"
    stores = opening(sqlite_config, declare(NOTES, fill))
    assert stores.failures == {}
    assert stores["catalog"].state == "unavailable"
    with pytest.raises(Unavailable, match="full"):
        stores["catalog"].read(lambda db: None)


def test_deferred_constraints_are_checked_before_the_commit(
    opening: Callable[..., Stores], config: StoresConfig, declare: Declare
) -> None:
    """Otherwise the first of several stores would be committed before another one fails."""
    parts = "CREATE TABLE parts (product BIGINT REFERENCES products (id) DEFERRABLE INITIALLY DEFERRED);"
    stores = opening(config, declare(PRODUCTS, parts, "INSERT INTO parts (product) VALUES (0);"))
    assert "the migrations of the store catalog break a constraint" in str(stores.failures["catalog-plugin"])


def test_an_engine_without_migrations_is_refused(declare: Declare, tmp_path: Path) -> None:
    """A plugin without migrations for a database gives this reason."""
    with pytest.raises(MigrationError, match="no migrations for postgresql"):
        read_migrations(store_on_sqlite_only(declare), "postgresql")


def store_on_sqlite_only(declare: Declare) -> Any:
    """Declare a store with migrations for SQLite only."""
    store = declare(NOTES)
    (store.migrations / "postgresql" / "0001_step.sql").unlink()  # type: ignore[attr-defined] # a Path in these tests
    (store.migrations / "postgresql").rmdir()  # type: ignore[attr-defined] # a Path in these tests
    return store


@pytest.mark.parametrize("end", ["COMMIT;", "begin transaction;", "-- note\nROLLBACK ;", "START TRANSACTION;"])
def test_a_step_that_ends_its_transaction_is_refused(declare: Declare, end: str) -> None:
    """Otherwise half of a step could be stored."""
    with pytest.raises(MigrationError, match="begins or ends a transaction"):
        read_migrations(declare(f"{NOTES}\n{end}"), "sqlite")


@pytest.mark.parametrize(
    ("database", "step"),
    [
        ("sqlite", "CREATE TRIGGER t AFTER INSERT ON notes\nBEGIN\n  DELETE FROM notes;\nEND;"),
        ("postgresql", "CREATE FUNCTION f() RETURNS int AS $$\nBEGIN\n  RETURN 1;\nEND;\n$$ LANGUAGE plpgsql;"),
    ],
)
def test_a_step_may_create_a_trigger_or_a_function(declare: Declare, database: str, step: str) -> None:
    """BEGIN and END inside a trigger or a function don't end the step's transaction."""
    assert len(read_migrations(declare(f"{NOTES}\n{step}"), database)) == 1


def test_an_edited_step_is_reported_and_not_run_again(config: StoresConfig, declare: Declare) -> None:
    """A corrected comment stops nothing, and a real change is not silent."""
    database = database_for("catalog", config.of("catalog"))
    migrate(declare(NOTES), database)
    log = structlog.testing.CapturingLogger()
    logger = structlog.wrap_logger(log, processors=[])
    assert migrate(declare(NOTES.replace("\n", "\r\n")), database, logger) == 1
    assert log.calls == []
    assert migrate(declare("-- better\n" + NOTES), database, logger) == 1
    assert [(call.method_name, call.kwargs["file"]) for call in log.calls] == [
        ("warning", f"{config.of('').dialect}/0001_step.sql")
    ]


def test_a_migration_of_data_is_told_when_it_begins(config: StoresConfig, declare: Declare) -> None:
    """It may take long; that of a new store is only told afterwards."""
    database = database_for("catalog", config.of("catalog"))
    with structlog.testing.capture_logs() as lines:
        for steps in ((NOTES,), (NOTES, AN_EMPTY_NOTE), (NOTES, AN_EMPTY_NOTE)):
            migrate(declare(*steps), database, structlog.get_logger())
    assert [line["event"] for line in lines] == [
        "the store was migrated",
        "the store is being migrated",
        "the store was migrated",
    ]


def test_entities_that_do_not_match_the_tables_are_found_at_open(config: StoresConfig, declare: Declare) -> None:
    """A column that the migrations lack fails the plugin, not its first request."""
    store = declare(PRODUCTS.replace("stock BIGINT NOT NULL", "stok BIGINT"), entities=product_entities)
    with open_stores_of(store, config) as failures:
        assert isinstance(failures["plugin"], SetupError)
        assert "stock" in str(failures["plugin"])


def test_entities_that_exit_fail_their_plugin(config: StoresConfig, declare: Declare) -> None:
    """They don't end the host."""

    def entities(db: Any) -> Any:
        raise SystemExit("no")

    with open_stores_of(declare(NOTES, entities=entities), config) as failures:
        assert "are wrong: no" in str(failures["plugin"])


def test_a_column_of_an_unsupported_type_is_named(config: StoresConfig, declare: Declare) -> None:
    """Pony names only the type."""

    class Color:
        """A type that no database has."""

    def entities(db: Any) -> Any:
        type("Note", (db.Entity,), {"_table_": "notes", "color": core.Required(Color)})
        return db

    with open_stores_of(declare(NOTES, entities=entities), config) as failures:
        assert "(of Note.color)" in str(failures["plugin"])


def test_stores_in_one_database_are_recorded_apart(postgresql: str, tmp_path: Path, declare: Declare) -> None:
    """On PostgreSQL, each store has its own numbers."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    migrate(declare(NOTES, AN_EMPTY_NOTE, name="notes"), database_for("notes", config.of("notes")))
    migrate(declare(PRODUCTS), database_for("catalog", config.of("catalog")))
    applied = "SELECT store, max(number) FROM plughost_migrations GROUP BY store ORDER BY store"
    assert rows(config, applied) == [("catalog", 1), ("notes", 2)]


def test_four_concurrent_processes_run_each_step_once(
    config: StoresConfig, declare: Declare, wait_for: Callable[..., None]
) -> None:
    """None fails, and none repeats another one's steps."""
    store = declare(NOTES, *[AN_EMPTY_NOTE] * 5)
    script = Path(__file__).with_name("migrating.py")
    command = [sys.executable, str(script), str(store.migrations), str(config.folder), config.url or "sqlite"]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = [process.communicate(timeout=60) for process in processes]
    assert outcomes == [("6\n", "")] * 4
    assert rows(config, "SELECT count(*) FROM notes") == [(5,)]


def test_a_step_blocks_other_writers_from_its_beginning(sqlite_config: StoresConfig) -> None:
    """Otherwise two processes could both find that a step is pending."""
    config = sqlite_config.of("catalog")
    with (
        database_for("catalog", config).administer() as db,
        closing(sqlite3.connect(str(config.path), timeout=0, isolation_level=None)) as other,
    ):
        db.begin_transaction()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")


def test_statements_are_split_where_they_end() -> None:
    """Semicolons in strings, comments and triggers don't split; the last statement needs none."""
    trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM b; DELETE FROM c; END;"
    script = f"INSERT INTO a VALUES ('x;y'); -- no; end\n{trigger} /* ; */ SELECT 1"
    assert [statement.strip() for statement in split_statements(script)] == [
        "INSERT INTO a VALUES ('x;y');",
        f"-- no; end\n{trigger}",
        "/* ; */ SELECT 1",
    ]


def test_postgresql_without_its_driver_names_the_extra(tmp_path: Path, declare: Declare) -> None:
    """The error for a configured URL says what to install."""
    code = (
        "import sys; sys.modules['psycopg2'] = None\n"
        "from pathlib import Path\n"
        "from plughost._api.declarations import Store\n"
        "from plughost.stores._config import StoresConfig\n"
        "from plughost.stores._manager import open_stores\n"
        f"folder = Path({str(declare(NOTES).migrations)!r})\n"
        "store = Store(name='s', entities=lambda db: db, migrations=folder, tables=())\n"
        f"config = StoresConfig(folder=Path({str(tmp_path)!r}), url='postgresql://nobody@127.0.0.1/none')\n"
        "print(open_stores({'plugin': (store,)}, config).failures['plugin'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'plughost[postgresql]'" in done.stdout


@pytest.mark.parametrize("error", [Busy, Unavailable])
def test_a_step_in_python_that_loses_the_database_has_not_failed(
    config: StoresConfig, declare: Declare, error: type[StoreError]
) -> None:
    """It is run again later, like one in SQL."""
    store = declare(NOTES)
    assert isinstance(store.migrations, Path)
    code = f"from plughost.stores import {error.__name__}\ndef migrate(session):\n    raise {error.__name__}('away')"
    (store.migrations / "0002_fill.py").write_text(code)
    with pytest.raises(error, match=r"^away$"):
        migrate(store, database_for("catalog", config.of("catalog")))


PYTHON = """
from plughost.stores import Session


def migrate(session: Session) -> None:
    note = session.insert("INSERT INTO notes (text) VALUES (?)", session.dialect)
    session.change("UPDATE notes SET text = ? WHERE id = ?", "100 % " + session.dialect, note)
"""


def test_a_step_in_python_is_part_of_the_transaction(config: StoresConfig, declare: Declare) -> None:
    """It is one file for both databases, runs once, in the order of its number."""
    store = declare(NOTES)
    assert isinstance(store.migrations, Path)
    (store.migrations / "0002_fill.py").write_text(PYTHON)
    database = database_for("catalog", config.of("catalog"))
    assert [migrate(store, database), migrate(store, database)] == [2, 2]
    assert rows(config, "SELECT text FROM notes") == [(f"100 % {database.config.dialect}",)]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def migrate(session):\n    {}['lost']", "KeyError at line 2: 'lost'"),
        ("def lose():\n    {}['lost']\ndef migrate(session):\n    lose()", "KeyError at line 2: 'lost'"),
        ("def migrate(session):\n    session.rows('SELECT nothing')", "nothing"),
        ("def migrate(session):\n    raise SystemExit('no')", "SystemExit at line 2: no"),
        ("def other(session): pass", "it has no function migrate"),
        ("def migrate(", "SyntaxError"),
    ],
)
def test_a_failing_step_in_python_leaves_nothing_behind(
    config: StoresConfig, declare: Declare, source: str, reason: str
) -> None:
    """The message has the file, the line and the reason, and the steps before it are rolled back, too."""
    store = declare(NOTES)
    assert isinstance(store.migrations, Path)
    (store.migrations / "0002_fill.py").write_text(source)
    database = database_for("catalog", config.of("catalog"))
    with pytest.raises(MigrationError, match=f"0002_fill.py failed, and nothing of it was kept: .*{reason}"):
        migrate(store, database)
    with database.administer() as db:
        assert not db.has_table("notes")
