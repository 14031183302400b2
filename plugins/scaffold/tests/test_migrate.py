"""`plughost migrate` numbers files, and finds a mistake in any step before it reaches anybody's data."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plughost import Store
from plughost._cli import main
from plughost.testing import fresh_postgresql
from plughost_scaffold.migration_check import check_migrations
from plughost_scaffold.writing import Scaffold, write

NOTES = """
CREATE TABLE authors (id INTEGER PRIMARY KEY, name VARCHAR(20) NOT NULL UNIQUE);
CREATE TABLE notes (id INTEGER PRIMARY KEY, author INTEGER NOT NULL REFERENCES authors (id), text VARCHAR(5) NOT NULL);
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """The kind of database; the test is skipped without it."""
    if request.param == "postgresql":
        with fresh_postgresql():
            pass
    name: str = request.param
    return name


def store(folder: Path, dialect: str, **steps: str) -> Store:
    """Return a store with these migrations, by file name without suffix."""
    (folder / dialect).mkdir()
    for name, text in steps.items():
        path = folder / f"{name[1:]}.py" if "def migrate" in text else folder / dialect / f"{name[1:]}.sql"
        path.write_text(text)
    return Store(name="notes", migrations=folder, tables=("authors", "notes"))


def results_of(tried: Store, dialect: str) -> list[tuple[str, bool]]:
    """Return the lines of the result, and whether each is a failure."""
    return [(line.text.partition(", ")[2] or line.text, line.failed) for line in check_migrations(tried, dialect)]


def test_every_step_runs_from_each_version_with_rows(dialect: str, tmp_path: Path) -> None:
    """A column without a default can only be added to an empty table, such as the author's own."""
    tried = store(
        tmp_path, dialect, _0001_notes=NOTES, _0002_mood="ALTER TABLE notes ADD COLUMN mood INTEGER NOT NULL;"
    )
    (failure,) = results_of(tried, dialect)
    assert failure[0].startswith(f"from 0001 with rows: the migration {dialect}/0002_mood.sql failed")
    assert failure[1]


def test_steps_in_python_and_sql_follow_each_other(dialect: str, tmp_path: Path) -> None:
    """Every step succeeds with the data of the steps before it."""
    python = """
def migrate(session):
    for key, text in session.rows("SELECT id, text FROM notes"):
        session.change("UPDATE notes SET content = ? WHERE id = ?", text.upper(), key)
"""
    steps = {
        "_0001_notes": NOTES,
        "_0002_content": "ALTER TABLE notes ADD COLUMN content VARCHAR(5);",
        "_0003_fill": python,
    }
    contract = "ALTER TABLE notes DROP COLUMN text;"
    (line,) = check_migrations(store(tmp_path, dialect, **steps, _0004_contract=contract), dialect)
    assert line.text.endswith("4 migrations, from empty, 0001, 0002, 0003: all well")


def test_a_table_that_takes_no_rows_is_named(dialect: str, tmp_path: Path) -> None:
    """The results say which tables were tried without rows, to the last line: not all is well."""
    strict = "CREATE TABLE notes (id INTEGER PRIMARY KEY, text VARCHAR(5) CHECK (text = 'x'));"
    lines = results_of(store(tmp_path, dialect, _0001_notes=strict, _0002_more="DELETE FROM notes;"), dialect)
    assert "no rows could be put into notes" in lines[0][0]
    assert lines[-1][0].endswith("0001: no migration failed, but not every table had rows: see above")
    assert not any(failed for _, failed in lines)


def test_a_table_of_a_later_step_is_not_missed(dialect: str, tmp_path: Path) -> None:
    """A row that is refused until another table has rows is put in later, though a declared table is still to come."""
    steps = {
        "_0001_notes": NOTES.replace("authors", "people"),
        "_0002_mood": "ALTER TABLE people ADD COLUMN mood INTEGER;",  # PostgreSQL now lists `people` last
        "_0003_authors": "CREATE TABLE authors (id INTEGER PRIMARY KEY);",
    }
    (line,) = check_migrations(store(tmp_path, dialect, **steps), dialect)
    assert line.text.endswith("3 migrations, from empty, 0001, 0002: all well")


def test_ids_that_a_refused_row_used_up_are_given_again(dialect: str, tmp_path: Path) -> None:
    """A table is filled although the one that it refers to took its rows only at the second attempt."""
    key = {"sqlite": "INTEGER PRIMARY KEY", "postgresql": "BIGSERIAL PRIMARY KEY"}[dialect]
    steps = {
        "_0001_notes": f"CREATE TABLE people (id {key}, name VARCHAR(20) NOT NULL);"
        f"CREATE TABLE authors (id {key}, person INTEGER NOT NULL REFERENCES people (id));"
        "CREATE TABLE notes (author INTEGER NOT NULL REFERENCES authors (id));",
        "_0002_mood": "ALTER TABLE people ADD COLUMN mood INTEGER;",  # PostgreSQL now lists `people` last
        "_0003_text": "ALTER TABLE notes ADD COLUMN text VARCHAR(5);",
    }
    (line,) = check_migrations(store(tmp_path, dialect, **steps), dialect)
    assert line.text.endswith("3 migrations, from empty, 0001, 0002: all well")


def migrate(*arguments: str) -> Result:
    """Call `plughost migrate`."""
    return CliRunner().invoke(main, ["migrate", *arguments])


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The migrations' folder of the plugin `written`, which is installed in place."""
    write(list(Scaffold("written", ["store"]).files()), tmp_path / "project")
    source = tmp_path / "project" / "src"
    info = tmp_path / "site" / "plughost_written-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plughost-written\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[plughost.plugins]\nwritten = plughost_written.plugin\n")
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(source))
    monkeypatch.chdir(tmp_path)
    yield source / "plughost_written" / "migrations"
    for name in [name for name in sys.modules if name.startswith("plughost_written")]:
        del sys.modules[name]


def test_a_new_migration_has_the_next_number(migrations: Path) -> None:
    """In SQL it is a file for each database, in Python one for both."""
    assert migrate("new", "written", "Add a mood!").exit_code == 0
    assert migrate("new", "written", "fill moods", "--python").exit_code == 0
    found = {file.relative_to(migrations).as_posix() for file in migrations.rglob("*.*") if file.is_file()}
    items = {
        f"{dialect}/{name}.sql" for dialect in ("sqlite", "postgresql") for name in ("0001_items", "0002_add_a_mood")
    }
    assert found == items | {"0003_fill_moods.py"}


def test_a_store_for_idempotent_responses_is_no_choice(migrations: Path) -> None:
    """Its migrations are the host's, so the plugin has one store to write a step for."""
    plugin = migrations.parent / "plugin.py"
    code = plugin.read_text().replace("[STORE]", "[STORE, idempotency_store('written')]")
    imported = "\nfrom plughost.stores import idempotency_store\nfrom plughost import"
    plugin.write_text(code.replace("\nfrom plughost import", imported, 1))
    assert migrate("new", "written", "add a mood").exit_code == 0
    refused = migrate("new", "written", "add a mood", "--store", "written-idempotency")
    assert "written has no store written-idempotency; it has written." in refused.output


def test_a_description_too_long_for_a_file_name_is_refused(migrations: Path) -> None:
    """The message has the system's reason, without a traceback."""
    answer = migrate("new", "written", "long " * 60)
    assert (answer.exit_code, answer.output.startswith("Error: ")) == (1, True), answer.output
    assert "File name too long" in answer.output


@pytest.mark.parametrize(("kind", "message"), [([], "write_this_step"), (["--python"], "write this step")])
def test_an_unwritten_step_is_not_applied(migrations: Path, kind: list[str], message: str) -> None:
    """A host that reloads meanwhile would record it as done, and never apply its later content."""
    assert migrate("new", "written", "add a mood", *kind).exit_code == 0
    answer = migrate("test", "written")
    assert answer.exit_code == 1
    assert "0002_add_a_mood" in answer.output
    assert message in answer.output


def test_a_plugins_databases_are_all_tried(migrations: Path) -> None:
    """The exit code is the result; each database is named."""
    answer = migrate("test", "written")
    assert answer.exit_code == 0, answer.output
    assert [line.split(",")[0].split(":")[0] for line in answer.output.splitlines()] == [
        "written on SQLite",
        "written on PostgreSQL",
    ]
    (migrations / "sqlite" / "0002_wrong.sql").write_text("CREATE TABLE;")
    answer = migrate("test", "written")
    assert answer.exit_code == 1
    assert "sqlite/0002_wrong.sql failed" in answer.output


@pytest.mark.parametrize(("dialect", "lacks"), [("sqlite", "PostgreSQL"), ("postgresql", "SQLite")])
def test_a_step_missing_for_one_database_is_a_failure(migrations: Path, dialect: str, lacks: str) -> None:
    """The code needs the same schema on both, but the author may run only one."""
    (migrations / dialect / "0002_moods.sql").write_text("CREATE TABLE written_moods (id INTEGER);")
    answer = migrate("test", "written")
    assert answer.exit_code == 1
    assert f"written on {lacks}: there is no 0002, which " in answer.output


def test_a_plugin_not_installed_in_place_is_refused() -> None:
    """A wheel's files are not changed, and the error names the remedy."""
    answer = migrate("new", "nothing", "change")
    assert answer.exit_code == 1
    assert "pip install -e" in answer.output


def test_a_serving_host_does_not_import_pytest() -> None:
    """Only the command that tries migrations imports it."""
    look = "import sys, plughost_scaffold.plugin; print('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout == "False\n"
