"""A process that migrates a store when told to: `migrating.py MIGRATIONS FOLDER URL`."""

from __future__ import annotations

import sys
from pathlib import Path

from plughost.declarations import Store
from plughost.stores import StoresConfig
from plughost.stores.engines import engine_for
from plughost.stores.migrations import migrate

if __name__ == "__main__":
    migrations, folder, url = sys.argv[1:]
    store = Store(name="catalog", entities=lambda db: db, migrations=Path(migrations), tables=())
    engine = engine_for("catalog", StoresConfig(folder=Path(folder), url=url).of("catalog"))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(f"{migrate(store, engine)}\n")
