"""A serving process keeps its locks on its SQLite files, whatever other code does with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.upgrades.notes_plugin import ADD, create, install, notes_host, plughost_command

import plughost

ROOT = Path(__file__).parents[2]


def count_locks(process: int, file: Path) -> int:
    """Return how many POSIX locks a process holds on a file."""
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    mine = [each for each in held if each[1] == "POSIX" and each[4] == str(process)]
    return sum(each[5].endswith(f":{file.stat().st_ino}") for each in mine)


def test_acknowledged_writes_outlive_an_upgrade_in_place_and_kill_9(tmp_path: Path, packages: Path) -> None:
    """After an upgrade and after commands that open the file, a serving host still has its write-ahead log."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages) as host:
        file = host.data_dir / "stores" / "notes.sqlite3"
        acknowledged = create(host, 5)
        assert count_locks(host.process.pid, file) > 0
        install(packages, "2.0", ADD)
        assert host.ask("reload")["changed"] == ["notes"]
        assert count_locks(host.process.pid, file) > 0
        plughost_command(tmp_path, packages, "stores")
        acknowledged |= create(host, 10)
        plughost_command(tmp_path, packages, "stores", "backup", "notes", "copy.sqlite3")
        acknowledged |= create(host, 10)
        assert count_locks(host.process.pid, file) > 0
        host.process.kill()
        host.process.wait()
    assert len(acknowledged) == 25
    with notes_host(tmp_path, packages) as host, host.client() as client:
        assert acknowledged <= set(client.get("/notes").json()["notes"])


def test_databases_are_opened_by_one_module_only(tmp_path: Path) -> None:
    """Only `_sqlite_files` and SQLite open them: to serve, upgrade, check, browse, back up, restore and purge.

    That module opens the log itself as well: SQLite holds no lock on it.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.upgrades.watched", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_only_one_module_calls_sqlite_connect() -> None:
    """Other modules get their connections from `_sqlite_files`."""
    sources = [*Path(plughost.__file__).parent.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    opening = {path.name for path in sources if re.search(r"sqlite3\.connect\(|SQLitePool\(", path.read_text())}
    assert opening == {"_sqlite_files.py"}
