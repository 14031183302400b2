"""A separate PostgreSQL server, for tests that would disturb the shared one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

PROGRAMS = Path("/usr/lib/postgresql")
OPTIONS = {"autovacuum": "off", "checkpoint_timeout": "1h", "wal_writer_delay": "10s"}
"""Nobody else uses a transaction's number, and what isn't committed stays off the disk."""


class Server:
    """A separate PostgreSQL server.

    Attributes:
        url: Where its database is.
        folder: What its user may write to.
    """

    def __init__(self, folder: Path, psycopg2: Any, wait_for: Callable[..., None]) -> None:
        """Create and start it; skip the test if PostgreSQL's programs are not installed."""
        found = shutil.which("initdb") or next(iter(sorted(PROGRAMS.glob("*/bin/initdb"), reverse=True)), None)
        if found is None:
            pytest.skip("a crash is not tested: PostgreSQL's programs are not installed")
        port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self.folder, self._psycopg2, self._wait_for = folder, psycopg2, wait_for
        self._user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
        if self._user is not None:
            shutil.chown(folder, self._user)
        assert self._run([str(found), "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync"]).wait(60) == 0
        options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", **OPTIONS}
        program = str(Path(found).resolve().with_name("postgres"))
        self._command = [program, "-D", "data", *(f"--{name}={value}" for name, value in options.items())]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._run(self._command)
        self._wait_for(self._answers)

    def crash(self) -> None:
        """Kill all of its processes at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def _answers(self) -> bool:
        if self._process.poll() is not None:  # processes of the crashed server may still be ending
            self._process = self._run(self._command)
        try:
            self._psycopg2.connect(self.url).close()
        except self._psycopg2.OperationalError:
            return False
        return True

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        silent = subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=self.folder, user=self._user, stdout=silent, stderr=silent, start_new_session=True
        )
