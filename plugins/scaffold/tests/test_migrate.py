"""`plughost migrate`: files are numbered, and a mistake of any step shows before somebody's data is migrated."""

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
    """The kind of database; the test is skipped where it is not there."""
    if request.param == "postgresql":
        with fresh_postgresql():
            pass
    name: str = request.param
    return name


def store(folder: Path, dialect: str, **steps: str) -> Store:
    """Return a store with these migrations, by file name without its ending."""
    (folder / dialect).mkdir()
    for name, text in steps.items():
        path = folder / f"{name[1:]}.py" if "def migrate" in text else folder / dialect / f"{name[1:]}.sql"
        path.write_text(text)
    return Store(name="notes", migrations=folder, tables=("authors", "notes"))


def told(tried: Store, dialect: str) -> list[tuple[str, bool]]:
    """Return what is said of a try, and whether that is a failure."""
    return [
        (line.text.partition(", ")[2] or line.text, line.failed) for line in check_migrations("notes", tried, dialect)
    ]


def test_every_step_is_run_from_each_version_with_rows(dialect: str, tmp_path: Path) -> None:
    """A column without a default can be added to an empty table only, and that is what the author's own database is."""
    tried = store(
        tmp_path, dialect, _0001_notes=NOTES, _0002_mood="ALTER TABLE notes ADD COLUMN mood INTEGER NOT NULL;"
    )
    (failure,) = told(tried, dialect)
    assert failure[0].startswith(f"from 0001 with rows: the migration {dialect}/0002_mood.sql failed")
    assert failure[1]


def test_steps_in_python_and_sql_follow_each_other(dialect: str, tmp_path: Path) -> None:
    """All is well where each step can live with what is there."""
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
    (line,) = check_migrations("notes", store(tmp_path, dialect, **steps, _0004_contract=contract), dialect)
    assert line.text.endswith("4 migrations, from empty, 0001, 0002, 0003: all well")


def test_a_table_that_takes_no_rows_is_named(dialect: str, tmp_path: Path) -> None:
    """What was tried without rows is said."""
    strict = "CREATE TABLE notes (id INTEGER PRIMARY KEY, text VARCHAR(5) CHECK (text = 'x'));"
    lines = told(store(tmp_path, dialect, _0001_notes=strict, _0002_more="DELETE FROM notes;"), dialect)
    assert "no rows could be put into notes" in lines[0][0]
    assert not any(failed for _, failed in lines)


def migrate(*arguments: str) -> Result:
    """Call `plughost migrate`."""
    return CliRunner().invoke(main, ["migrate", *arguments])


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the migrations of the plugin `written`, which is installed in place."""
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


def test_a_new_migration_is_the_next_of_both_databases(migrations: Path) -> None:
    """In SQL a file for each, in Python one for both; each has the number that follows."""
    assert migrate("new", "written", "Add a mood!").exit_code == 0
    assert migrate("new", "written", "fill moods", "--python").exit_code == 0
    found = {file.relative_to(migrations).as_posix() for file in migrations.rglob("*.*") if file.is_file()}
    items = {
        f"{dialect}/{name}.sql" for dialect in ("sqlite", "postgresql") for name in ("0001_items", "0002_add_a_mood")
    }
    assert found == items | {"0003_fill_moods.py"}


@pytest.mark.parametrize(("kind", "told"), [([], "write_this_step"), (["--python"], "write this step")])
def test_a_step_that_is_not_written_yet_is_not_applied(migrations: Path, kind: list[str], told: str) -> None:
    """A host that reloads while its author writes would record it as done, and never apply what is written then."""
    assert migrate("new", "written", "add a mood", *kind).exit_code == 0
    answer = migrate("test", "written")
    assert answer.exit_code == 1
    assert "0002_add_a_mood" in answer.output
    assert told in answer.output


def test_all_of_a_plugin_is_tried(migrations: Path) -> None:
    """The exit code tells whether all was well; each database is named."""
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
def test_a_step_that_one_database_lacks_is_a_failure(migrations: Path, dialect: str, lacks: str) -> None:
    """The code needs the same schema on both, and only the one that its author runs would show it."""
    (migrations / dialect / "0002_moods.sql").write_text("CREATE TABLE written_moods (id INTEGER);")
    answer = migrate("test", "written")
    assert answer.exit_code == 1
    assert f"written on {lacks}: there is no 0002, which " in answer.output


def test_what_is_not_installed_in_place_is_refused() -> None:
    """Nothing is written into a wheel's files, and what to do is named."""
    answer = migrate("new", "nothing", "change")
    assert answer.exit_code == 1
    assert "pip install -e" in answer.output


def test_a_host_that_serves_needs_no_pytest() -> None:
    """What tries migrations is imported by who does, and not at each start of a host."""
    look = "import sys, plughost_scaffold.plugin; print('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout == "False\n"
