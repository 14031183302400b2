"""After SIGTERM under load, accepted requests are answered on each engine and protocol, and the host ends well.

`PLUGHOST_TEST_TRIES` sets the number of tries with each engine, one by default.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h2.connection
import h2.events
import httpx
import pytest
from tests.host.packages import plugin_entry, write_package
from tests.integration.kit import LANES, PATIENCE, HostProcess, Lane, host_process, write_settings
from tests.integration.load import Load
from tests.waiting import wait_until

from plughost import NotRunning

if TYPE_CHECKING:
    from plughost._settings.models import EngineName

TRIES: Final = int(os.environ.get("PLUGHOST_TEST_TRIES", "1"))
HELD: Final = 4
"""Slow requests in flight on each lane."""
UNFINISHED: Final = 200
"""Streams of a connection whose bodies never end: more than what tokio runs before it looks at anything else."""

SLOW: Final = """
import pathlib, threading
from plughost import Operation, Route, RouteGroup, hookimpl


class Slow:
    def on_get(self, req, resp, name):
        pathlib.Path(f"begun-{name}").touch()
        while not pathlib.Path("go-on").exists():
            threading.Event().wait(0.01)
        resp.media = name


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/slow", routes=(Route("/{name}", Slow(), {"GET": Operation(summary="Wait")}),))]
"""


ENDLESS: Final = """
import pathlib
from plughost import Store, hookimpl


@hookimpl
def register_stores(context):
    return [Store(name="endless", migrations=pathlib.Path("migrations"), tables=("endless",))]
"""
MIGRATION: Final = """
import pathlib, threading


def migrate(session):
    pathlib.Path("migrating").touch()
    threading.Event().wait()
"""


@pytest.fixture(params=["waitress", pytest.param("granian", marks=pytest.mark.thorough)])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostProcess]:
    """A host with every plugin and a slow one; its HTTP listener is of each engine, HTTPS is granian's."""
    engine: EngineName = request.param
    packages = tmp_path / "packages"
    write_package(packages, "slow", {"slow_plugin.py": SLOW}, entry_points=plugin_entry("slow", "slow_plugin"))
    settings = {
        "sites": {"main": {"http_engine": engine, "threads": 3 * HELD}},
        "requests": {"plugin_threads": 3 * HELD},
    }
    with host_process(tmp_path, settings, environment={"PYTHONPATH": str(packages)}) as running:
        yield running


def refuses(host: HostProcess) -> bool:
    """Return whether none of the site's listeners accepts connections."""
    for scheme in ("http", "https"):
        try:
            socket.create_connection(("127.0.0.1", host.port(scheme=scheme)), timeout=PATIENCE).close()
        except ConnectionError:  # refused, or reset while the port closes
            continue
        return False
    return True


def hold(host: HostProcess, lane: Lane, name: str) -> str:
    """Send a slow request over a new connection, and return the answer."""
    with host.client(lane) as client:
        answer = client.get(f"/slow/{name}")
        assert answer.status_code == 200
        return str(answer.json())


def use(client: httpx.Client) -> str:
    """List products and create one, repeatedly, until no listener is open."""
    try:
        for answer, status in (client.get("/api/v2/products"), 200), (client.post("/api/v2/products", json={}), 400):
            assert answer.status_code == status, f"{answer.status_code} {answer.headers} {answer.text}"
    except httpx.ConnectError:
        return "refused"
    return "served"


@pytest.mark.parametrize("attempt", range(TRIES))
def test_sigterm_under_load_loses_nothing(host: HostProcess, tmp_path: Path, attempt: int) -> None:
    """Slow requests in flight are answered, and active clients are asked to close before they are refused."""
    names = [(lane, f"{lane}-{number}") for lane in LANES for number in range(HELD)]
    with ThreadPoolExecutor(len(names)) as pool, Load(host) as load, ExitStack() as stack:
        stack.callback((tmp_path / "go-on").touch)  # whatever happens, nothing waits for ever
        load.add("products", use, LANES[:2])
        held: list[Future[str]] = [pool.submit(hold, host, lane, name) for lane, name in names]
        wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == len(names))
        served = load.tally["served"]
        wait_until(lambda: load.tally["served"] > served + 20)
        host.process.send_signal(signal.SIGTERM)
        wait_until(lambda: refuses(host))
        wait_until(lambda: load.tally["refused"])
        assert host.ask("status")["phase"] == "draining"
        (tmp_path / "go-on").touch()
        assert [each.result(PATIENCE) for each in held] == [name for _, name in names]
    assert host.process.wait(PATIENCE) == 0
    host.no_tracebacks()  # first, since it shows the reason of a failed request
    assert load.failures == []


def begin_bodies(host: HostProcess) -> ssl.SSLSocket:
    """Return an HTTP/2 connection with streams whose bodies have begun, arrived and don't continue."""
    context = host.tls
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", host.port(scheme="https")), timeout=PATIENCE)
    client = context.wrap_socket(plain, server_hostname="127.0.0.1")
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    headers = [(":method", "POST"), (":path", "/api/v2/products"), (":scheme", "https"), (":authority", "localhost")]
    for stream in range(1, 2 * UNFINISHED, 2):
        connection.send_headers(stream, [*headers, ("content-length", "9")])
        connection.send_data(stream, b"{")
    connection.ping(b"received")
    client.sendall(connection.data_to_send())
    while not any(isinstance(each, h2.events.PingAckReceived) for each in connection.receive_data(client.recv(65536))):
        pass
    return client


@pytest.mark.parametrize("attempt", range(TRIES))
def test_unfinished_bodies_do_not_spoil_the_exit(tmp_path: Path, attempt: int) -> None:
    """A host that stops while 200 HTTP/2 request bodies are incomplete ends with exit code 0."""
    with host_process(tmp_path) as running, begin_bodies(running):
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE) == 0, running.errors.read_text()


def test_a_reload_that_hangs_does_not_keep_the_host(tmp_path: Path) -> None:
    """While a migration of a reload does not end, SIGTERM still answers what is in flight, and ends the host."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (tmp_path / "migrations" / "sqlite").mkdir(parents=True)
    (tmp_path / "migrations" / "0001_wait.py").write_text(MIGRATION)
    environment = {"PYTHONPATH": str(packages)}
    with ThreadPoolExecutor() as pool, host_process(tmp_path, {"grace_time": 0.5}, environment=environment) as host:
        write_package(packages, "endless", {"endless.py": ENDLESS}, entry_points=plugin_entry("endless", "endless"))
        reload = pool.submit(host.ask, "reload")
        wait_until((tmp_path / "migrating").exists)
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(PATIENCE) == 0, host.errors.read_text()
        with pytest.raises(NotRunning):
            reload.result(PATIENCE)
    assert "a reload was cut off" in host.errors.read_text()


def test_a_stop_during_the_start_ends_it(tmp_path: Path) -> None:
    """SIGTERM doesn't wait until a slow import has returned, and is no failure."""
    packages = tmp_path / "packages"
    slow = "import pathlib, threading\npathlib.Path('importing').touch()\nthreading.Event().wait()\n"
    write_package(packages, "slow", {"slow_plugin.py": slow}, entry_points=plugin_entry("slow", "slow_plugin"))
    file = write_settings(tmp_path, {})
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "plughost", "serve", "--config", file.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(packages)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until(lambda: (tmp_path / "importing").exists() or process.poll() is not None)
    process.terminate()
    output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, '"event":"stopped"' in output, "Traceback" in output) == (0, True, False), output
