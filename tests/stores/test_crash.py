"""What a PostgreSQL server that crashes makes of a commit whose answer is lost."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.test_rows import add, skus

from plughost.stores import OpenStore, Stores, StoresConfig
from plughost.stores._postgresql_sessions import PostgreSQLSessions
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    from plughost import Store

PROGRAMS = Path("/usr/lib/postgresql")
OPTIONS = {"autovacuum": "off", "checkpoint_timeout": "1h", "wal_writer_delay": "10s"}
"""Nobody else uses a transaction's number, and what isn't committed stays off the disk."""


class Server:
    """A PostgreSQL server of a test's own.

    Attributes:
        url: Where its database is.
    """

    def __init__(self, folder: Path, psycopg2: Any, wait_for: Callable[..., None]) -> None:
        """Make and start it; skip the test where PostgreSQL's programs are not installed."""
        found = shutil.which("initdb") or next(iter(sorted(PROGRAMS.glob("*/bin/initdb"), reverse=True)), None)
        if found is None:
            pytest.skip("a crash is not tested: PostgreSQL's programs are not installed")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self._folder, self._psycopg2, self._wait_for = folder, psycopg2, wait_for
        self._user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
        if self._user is not None:
            shutil.chown(folder, self._user)
        assert self._run([str(found), "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync"]).wait(60) == 0
        options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", **OPTIONS}
        program = str(Path(found).resolve().with_name("postgres"))
        self._command = [program, "-D", "data", *(f"--{name}={value}" for name, value in options.items())]
        self.start()

    def start(self) -> None:
        """Start it, and return when it answers."""
        self._process = self._run(self._command)
        self._wait_for(self._answers)

    def crash(self) -> None:
        """End all of its processes at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def _answers(self) -> bool:
        try:
            self._psycopg2.connect(self.url).close()
        except self._psycopg2.OperationalError:
            return False
        return True

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        silent = subprocess.DEVNULL
        return subprocess.Popen(
            command, cwd=self._folder, user=self._user, stdout=silent, stderr=silent, start_new_session=True
        )


@pytest.fixture
def server(psycopg2: Any, wait_for: Callable[..., None]) -> Iterator[Server]:
    """A server, in a folder that another user may enter."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        home = Path(folder, "server")
        home.mkdir()
        running = Server(home, psycopg2, wait_for)
        yield running
        running.crash()


def test_the_number_of_a_transaction_that_a_server_lost_says_nothing(
    opening: Callable[..., Stores], plain_products: Store, server: Server, psycopg2: Any, tmp_path: Path
) -> None:
    """After a crash another transaction gets it, whose commit is not taken for that of the lost one."""
    config = StoresConfig(folder=tmp_path / "stores", url=server.url, patience=30, pause=0.01)
    store = opening(config, plain_products)["catalog"]
    sessions = _sessions(store)
    kept, lost = (sessions.session(Mode.WRITE, time.monotonic() + 30) for _ in range(2))
    add(kept, "kept")
    number_kept, life = kept.rows("SELECT txid_current()")[0][0], kept.connection.life
    kept.commit()
    add(lost, "lost")
    number_lost = lost.rows("SELECT txid_current()")[0][0]
    assert sessions.outcome(number_kept, life) == "committed"

    server.crash()
    server.start()
    lost.undo()
    with closing(psycopg2.connect(server.url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        number = 0
        while number < number_lost:
            cursor.execute("SELECT txid_current()")
            number = cursor.fetchone()[0]
        cursor.execute("SELECT txid_status(%s)", (number_lost,))
        assert cursor.fetchone() == ("committed",)  # so the server says
    assert sessions.outcome(number_lost, life) is None
    assert store.read(skus) == ["kept"]


def _sessions(store: OpenStore[Any]) -> PostgreSQLSessions:
    assert store._presence.opened is not None
    sessions = store._presence.opened.sessions
    assert isinstance(sessions, PostgreSQLSessions)
    return sessions
