"""Do everything that a host can do with a SQLite store in this process, and observe it with an audit hook.

Print what opened a database, its log or its shared memory without `_sqlite_files`. That module also opens a log to
read its length: SQLite holds no lock on a log, so closing it releases none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.upgrades.notes_plugin import ADD, install

found: set[str] = set()


def record_access(event: str, arguments: tuple[Any, ...]) -> None:
    """Record which code opens a database file."""
    if event not in {"open", "sqlite3.connect"} or not isinstance(arguments[0], (str, bytes)):
        return
    path = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
    if ".sqlite3" not in path or path.endswith((".lock", ".new")):
        return
    frame = sys._getframe(1)
    caller = Path(frame.f_code.co_filename)
    ours = caller.name == "_sqlite_files.py"
    through = (ours or "pony" in caller.parts) if event == "sqlite3.connect" else (ours and path.endswith("-wal"))
    if not through:
        found.add(f"{caller.name} line {frame.f_lineno}: {event} {Path(path).name}")


def main(folder: Path) -> None:
    """Install, serve, inspect, back up, upgrade and purge."""
    packages = folder / "packages"
    sys.path.insert(0, str(packages))
    install(packages, "1.0")
    sys.addaudithook(record_access)
    from plughost._backups import backup, restore  # noqa: PLC0415 - after the hook
    from plughost.stores import browse, purge  # noqa: PLC0415 - after the hook
    from plughost.stores._manager import check, statistics  # noqa: PLC0415 - after the hook
    from plughost.testing import running_host  # noqa: PLC0415 - after the hook

    with running_host(["notes"], dev=False, settings={"data_dir": str(folder / "data"), "sites": HTTP}) as host:
        with host.client() as client:
            client.post("/notes", json={"text": "a"}).raise_for_status()
        for version in ("1.0", "2.0"):
            if version == "2.0":
                install(packages, version, ADD)
                assert host.host.reload().changed == ("notes",)
            store = host.store("notes")
            assert check(store).up
            assert statistics(store).rows == {"notes": 1}
            assert browse(store, "notes").total == 1
            backup(store, folder / f"{version}.copy")
        host.host.stop()
        restore(store, folder / "2.0.copy")
        purge(store)
    sys.stdout.writelines(f"{each}\n" for each in sorted(found))


HTTP = {"main": {"listeners": ["http"], "http_port": 0}, "library": {"listeners": ["http"], "http_port": 0}}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
