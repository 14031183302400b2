"""A serving process keeps its locks on its SQLite files, whatever else is done with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.upgrades.keeping import ADD, create, install, keeping_host, plughost_command

import plughost

ROOT = Path(__file__).parents[2]


def locks(process: int, file: Path) -> int:
    """Return how many POSIX locks a process holds on a file."""
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    mine = [each for each in held if each[1] == "POSIX" and each[4] == str(process)]
    return sum(each[5].endswith(f":{file.stat().st_ino}") for each in mine)


def test_acknowledged_writes_outlive_an_upgrade_in_place_and_kill_9(tmp_path: Path, packages: Path) -> None:
    """After an upgrade, other commands that open the file leave a serving host its write-ahead log."""
    install(packages, "1.0")
    with keeping_host(tmp_path, packages) as host:
        file = host.data_dir / "stores" / "notes.sqlite3"
        acknowledged = create(host, 5)
        assert locks(host.process.pid, file) > 0
        install(packages, "2.0", ADD)
        assert host.ask("reload")["changed"] == ["notes"]
        assert locks(host.process.pid, file) > 0
        plughost_command(tmp_path, packages, "stores")
        acknowledged |= create(host, 10)
        plughost_command(tmp_path, packages, "stores", "backup", "notes", "copy.sqlite3")
        acknowledged |= create(host, 10)
        assert locks(host.process.pid, file) > 0
        host.process.kill()
        host.process.wait()
    assert len(acknowledged) == 25
    with keeping_host(tmp_path, packages) as host, host.client() as client:
        assert acknowledged <= set(client.get("/notes").json()["notes"])


def test_nothing_opens_a_database_by_a_plain_descriptor(tmp_path: Path) -> None:
    """Serving, upgrading, health, figures, browsing, backup, restore and purge go through one module, and SQLite.

    The log alone is opened by that module itself, too: no lock of SQLite's is on it.
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


def test_one_module_knows_how_to_open_a_database() -> None:
    """Whoever needs a connection asks `_sqlite_files` for it."""
    sources = [*Path(plughost.__file__).parent.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    opening = {path.name for path in sources if re.search(r"sqlite3\.connect\(|SQLitePool\(", path.read_text())}
    assert opening == {"_sqlite_files.py"}
