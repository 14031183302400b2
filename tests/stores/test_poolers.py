"""A pooler between a host and PostgreSQL: PgBouncer with each of its modes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.ports import free_port
from tests.stores.test_rows import add, skus

from plughost.stores import SetupError
from plughost.stores._config import StoresConfig

if TYPE_CHECKING:
    from plughost.stores._manager import Stores

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
SETTINGS = """
[databases]
* = host={server.hostname} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
"""

Pool = Callable[..., StoresConfig]
Query = Callable[[str], object]

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")


@pytest.fixture
def pooled(postgresql: str, psycopg2: Any, tmp_path: Path, wait_for: Callable[..., None]) -> Iterator[Pool]:
    """Return a function that starts a pooler with a mode and further settings, and returns settings of a host."""
    server = urlsplit(postgresql)
    running: list[subprocess.Popen[bytes]] = []

    def start(mode: str, *lines: str) -> StoresConfig:
        own_port = free_port()
        text = SETTINGS.format(server=server, port=server.port or 5432, own_port=own_port, mode=mode)
        user = f"user={server.username}" + (f" password={server.password}" if server.password else "")
        settings = Path(folder, f"{own_port}.ini")
        settings.write_text("\n".join([text.replace("* = ", f"* = {user} "), *lines, ""]))
        assert PROGRAM is not None
        silent = subprocess.DEVNULL
        as_user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
        running.append(subprocess.Popen([PROGRAM, settings], user=as_user, stdout=silent, stderr=silent))
        url = f"postgresql://plughost@127.0.0.1:{own_port}{server.path}"
        wait_for(lambda: can_connect(psycopg2, url))
        return StoresConfig(folder=tmp_path, url=url, patience=2, pause=0.01)

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield start
        for each in running:
            each.kill()
            each.wait(30)


@pytest.fixture
def query(postgresql: str, psycopg2: Any) -> Iterator[Query]:
    """Return a function that returns the first value of a query, past the pooler."""
    with closing(psycopg2.connect(postgresql)) as connection, connection.cursor() as cursor:

        def first_value(sql: str) -> object:
            cursor.execute(sql)
            return cursor.fetchone()[0]

        yield first_value


def can_connect(psycopg2: Any, url: str) -> bool:
    """Return whether a server answers."""
    with suppress(psycopg2.OperationalError):
        psycopg2.connect(url).close()
        return True
    return False


def test_session_pooling_needs_no_setting_of_the_pooler(
    opening: Callable[..., Stores], pooled: Pool, plain_products: Any
) -> None:
    """Two hosts are served, a third may come once they have gone, and time limits hold though no option passes it."""
    config = pooled("session")
    hosts = [opening(config, plain_products) for _ in range(2)]
    hosts[0]["catalog"].run(add, "A")
    assert hosts[1]["catalog"].read(skus) == ["A"]
    shown = hosts[1]["catalog"].read(
        lambda session: [session.rows(f"SHOW {name}")[0][0] for name in ("lock_timeout", "TimeZone")]
    )
    assert shown == ["2s", "UTC"]
    for each in hosts:
        each.close()
    assert opening(config, plain_products)["catalog"].read(skus) == ["A"]


@pytest.mark.parametrize("lines", [(), ("server_round_robin = 1", "min_pool_size = 5")])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_shared_sessions_are_refused(
    opening: Callable[..., Stores],
    pooled: Pool,
    plain_products: Any,
    query: Query,
    *,
    mode: str,
    lines: tuple[str, ...],
) -> None:
    """Hosts would share their claims there, so that one could purge what another serves; none is left behind."""
    for _ in range(2):
        failure = opening(pooled(mode, *lines), plain_products).failures["catalog-plugin"]
        assert isinstance(failure, SetupError)
        assert "pooler that lets connections share a session of the server: use session pooling" in str(failure)
    assert query("SELECT to_regclass('products')") is None
    claims = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = "
    assert query(claims + "(SELECT oid FROM pg_database WHERE datname = current_database())") == 0


def test_sessions_that_a_pooler_does_not_reset_are_refused(
    opening: Callable[..., Stores], pooled: Pool, plain_products: Any
) -> None:
    """They would still have the claims of the client before."""
    config = pooled("session", "server_reset_query =", "default_pool_size = 2")
    opening(config, plain_products).close()
    assert "server_reset_query = DISCARD ALL" in str(opening(config, plain_products).failures["catalog-plugin"])


def test_a_pooler_that_begins_to_share_sessions_is_logged(
    opening: Callable[..., Stores],
    pooled: Pool,
    plain_products: Any,
    *,
    psycopg2: Any,
    log_lines: list[dict[str, Any]],
    wait_for: Callable[..., None],
) -> None:
    """Operations that need a further connection are refused with the reason, though the store was open before."""
    config = pooled("session", "admin_users = admin")
    store = opening(config, plain_products)["catalog"]
    url = urlsplit(str(config.url))
    console = url._replace(netloc=f"admin@{url.netloc.rpartition('@')[2]}", path="/pgbouncer").geturl()
    with closing(psycopg2.connect(console)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("SET pool_mode = 'transaction'")

        def has_clients() -> bool:
            cursor.execute("SHOW CLIENTS")
            return any(database != "pgbouncer" for _, _, database, *_ in cursor.fetchall())

        def read_over_new_connections() -> None:
            for _ in range(3):  # two sessions of the server are there, and one of them may be unused
                assert store._availability.handle is not None
                store._availability.handle.sessions.release_claim()  # closes its connections, too
                wait_for(lambda: not has_clients())
                store.read(skus)

        with pytest.raises(SetupError, match="use session pooling"):
            read_over_new_connections()
    assert log_lines[-1]["event"] == "the store can't connect"
