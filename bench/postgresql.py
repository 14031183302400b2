"""The PostgreSQL server of a run: a separate one, since the pools of all servers need many connections."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg2
from bench.servers import PATIENCE, ROOT, StartError, free_ports

_VARIABLE: Final = "PLUGHOST_TEST_POSTGRESQL"
_SHARED: Final = "postgresql://postgres@127.0.0.1:5432/postgres"
_MAX_CONNECTIONS: Final = 400
"""Connections: up to 40 for each worker of each peer, and ten for each of plughost's stores."""


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a server and return its URL. Use a shared one if it is named, or if PostgreSQL is not installed."""
    named, initdb = os.environ.get(_VARIABLE), _initdb()
    if named or initdb is None:
        yield named or _SHARED
        return
    user = "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="postgresql-", dir=ROOT / ".bench", ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, user)
        data = Path(folder) / "data"
        make = [str(initdb), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        made = subprocess.run(make, cwd=folder, user=user, check=False, capture_output=True, text=True)
        if made.returncode:
            raise StartError(f"initdb made no server: {made.stderr}\n{_VARIABLE} may name one")
        options = [f"--port={port}", f"--max_connections={_MAX_CONNECTIONS}", "--listen_addresses=127.0.0.1"]
        command = [str(initdb.with_name("postgres")), "-D", str(data), *options, "--unix_socket_directories="]
        silent = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=folder, user=user, stdin=silent, stdout=silent, stderr=silent)
        try:
            url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
            _wait_for(url, process)
            yield url
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown
            process.wait(PATIENCE)


def _initdb() -> Path | None:
    """Return the path of initdb. None if it is not installed."""
    found = shutil.which("initdb")
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[4]))
    return Path(found).resolve() if found else next(reversed(newest), None)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg2.connect(url).close()
        except psycopg2.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartError(f"PostgreSQL does not start: {error}\n{_VARIABLE} may name a server") from error
            time.sleep(0.05)
        else:
            return
