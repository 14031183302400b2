"""If a host is killed during a migration, the store is as it was before."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.upgrades.notes_plugin import RENAME, create, install, list_notes, notes_host
from tests.waiting import wait_until

from plughost._api.errors import NotRunning

if TYPE_CHECKING:
    from tests.integration.kit import HostProcess

LONG = """
INSERT INTO notes (text)
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000000)
SELECT 'number' FROM numbers;
"""


def migration_probe(host: HostProcess, settings: Mapping[str, Any]) -> Callable[[], bool]:
    """Return a function that tells whether a migration has begun."""
    url = settings["stores"].get("url")
    if url is None:
        return lambda: _is_locked(host.data_dir / "stores" / "notes.sqlite3")
    return lambda: _is_inserting(url)


def _is_locked(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


def _is_inserting(url: str) -> bool:
    driver = pytest.importorskip("psycopg2")
    with closing(driver.connect(url)) as server, server.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND datname = current_database()"
            " AND query LIKE '%WITH RECURSIVE numbers%' AND pid <> pg_backend_pid()"
        )
        return bool(cursor.fetchall())


def test_a_host_killed_during_a_migration_has_changed_nothing(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """The reinstalled older version finds its schema and every acknowledged row without manual repair.

    A PostgreSQL server may take a second to notice, and requests are 503 until then.
    """
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:
        acknowledged = create(host, 5)
        install(packages, "2.0", RENAME, LONG.replace("(text)", "(content)"), column="content")

        def reload() -> None:
            with suppress(NotRunning, ConnectionError):
                host.ask("reload")

        reloading = threading.Thread(target=reload)
        reloading.start()
        wait_until(migration_probe(host, settings))
        host.process.kill()
        host.process.wait()
        reloading.join()
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host, host.client() as client:
        wait_until(lambda: client.get("/notes").status_code != 503)
        assert list_notes(host) == ("1.0", acknowledged)
        more = create(host, 2)
        assert list_notes(host)[1] == acknowledged | more
