"""The script in docs/operators/stores.md that moves a store from SQLite to PostgreSQL."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from plughost import Store, hookimpl
from plughost.stores import Session
from plughost.testing import fresh_postgresql, plugin_distribution, running_host

PAGE: Final = Path(__file__).parents[2] / "docs" / "operators" / "stores.md"
TABLES: Final = """
CREATE TABLE moved ({id} PRIMARY KEY{auto}, name TEXT NOT NULL, price NUMERIC(15, 4), at {moment}, open BOOLEAN,
    picture {bytes});
CREATE TABLE "moved parts" (id VARCHAR(9) PRIMARY KEY, "of" BIGINT NOT NULL REFERENCES moved (id));
CREATE TABLE "moved Copy" ({id} PRIMARY KEY{auto}, name TEXT);
INSERT INTO "moved Copy" SELECT id, name FROM moved;
INSERT INTO moved (name) VALUES ('from the migration');
"""
MOMENT: Final = datetime(2027, 5, 1, 11, 30, tzinfo=UTC)
ADD: Final = "INSERT INTO moved (name, price, at, open, picture) VALUES (?, ?, ?, ?, ?)"


class Plugin:
    """A plugin with a store."""

    def __init__(self, folder: Path, auto: str) -> None:
        """Write the migrations."""
        kinds = {
            "sqlite": {"id": "id INTEGER", "auto": auto, "moment": "TIMESTAMP", "bytes": "BLOB"},
            "postgresql": {"id": "id BIGSERIAL", "auto": "", "moment": "TIMESTAMPTZ", "bytes": "BYTEA"},
        }
        for dialect, names in kinds.items():
            (folder / dialect).mkdir()
            (folder / dialect / "0001_moved.sql").write_text(TABLES.format(**names))
        self.store = Store(name="moved", migrations=folder, tables=("moved", "moved parts", "moved Copy"))

    @hookimpl
    def register_stores(self) -> list[Store]:
        """Return the store."""
        return [self.store]


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row as both databases have it, by the conversions that docs/plugin-authors/stores.md shows."""
    key, name, price, at, opened, picture = row
    at = at and datetime.fromisoformat(str(at))
    return key, name, price and Decimal(str(price)), at, opened and bool(opened), picture and bytes(picture)


@pytest.mark.parametrize("auto", ["", " AUTOINCREMENT"])
def test_the_script_moves_every_row(tmp_path: Path, auto: str) -> None:
    """All kinds of values arrive; rows of the migration are not doubled, and ids go on after the last one."""
    script = re.search("```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert script is not None
    (tmp_path / "move.py").write_text(script[1])
    (tmp_path / "migrations").mkdir()
    plugin = plugin_distribution("moved", Plugin(tmp_path / "migrations", auto))
    with fresh_postgresql() as url:
        options: list[dict[str, Any]] = [{"data_dir": tmp_path / "data"}, {"settings": {"stores": {"url": url}}}]
        with running_host(distributions=[plugin], strict=True, **options[0]) as host:
            store = host.store("moved")
            store.single(Session.insert, ADD, "it's 5 %s \\ é", Decimal("19.99"), MOMENT, True, b"\0\xff")
            last = store.single(Session.insert, ADD, "gone", 0, MOMENT, False, b"")
            store.single(Session.change, 'INSERT INTO "moved parts" VALUES (?, ?)', "0012", 2)
            store.single(Session.change, "DELETE FROM moved WHERE id = ?", last)
            expected = [plain(row) for row in store.read(Session.rows, "SELECT * FROM moved ORDER BY id")]
        with running_host(distributions=[plugin], strict=True, **options[1]):
            pass  # it creates the tables
        file = tmp_path / "data" / "stores" / "moved.sqlite3"
        subprocess.run([sys.executable, tmp_path / "move.py", file, url], check=True)
        with running_host(distributions=[plugin], strict=True, **options[1]) as host:
            store = host.store("moved")
            assert [plain(row) for row in store.read(Session.rows, "SELECT * FROM moved ORDER BY id")] == expected
            assert store.read(Session.rows, 'SELECT * FROM "moved parts"') == [("0012", 2)]
            assert store.single(Session.insert, ADD, "next", None, None, None, None) == (last + 1 if auto else last)
