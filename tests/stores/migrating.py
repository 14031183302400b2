"""A process that migrates a store when asked: `migrating.py MIGRATIONS FOLDER URL`."""

from __future__ import annotations

import sys
from pathlib import Path

from plughost._api.declarations import Store
from plughost.stores._config import StoresConfig
from plughost.stores._manager import open_stores

if __name__ == "__main__":
    migrations, folder, url = sys.argv[1:]
    store = Store(name="catalog", entities=lambda db: db, migrations=Path(migrations), tables=())
    config = StoresConfig(folder=Path(folder), url=url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(f"{open_stores({'plugin': (store,)}, config)['catalog'].schema}\n")
