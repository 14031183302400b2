"""A host with a low limit of open files continues to serve, however many clients connect, and stops cleanly."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.host.packages import plugin_entry, write_package
from tests.integration.kit import HostProcess, host_process, write_settings
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from plughost._settings.models import EngineName


IDLE = 24  # connections, more than the descriptors that the plugin below leaves
HOARDER = """
import threading
import time

import falcon
from plughost import Operation, Route, RouteGroup, hookimpl

hoard = []


def take(number):
    while number:
        try:
            hoard.append(open("/dev/null"))
            number -= 1
        except OSError:
            time.sleep(0.001)


class Hoard:
    def on_put(self, req, resp):
        try:
            while True:
                hoard.append(open("/dev/null"))
        except OSError:
            left = req.get_param_as_int("left", required=True)
            del hoard[len(hoard) - left:]
        if not left:  # not even the first ones that become free
            number = req.get_param_as_int("then", default=6)
            threading.Thread(target=take, args=(number,), daemon=True).start()
        resp.status = falcon.HTTP_204


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/hoard", routes=(Route("", Hoard(), {"PUT": Operation(summary="Hoard")}),))]
"""


def hoarding_process(folder: Path, settings: Mapping[str, Any]) -> AbstractContextManager[HostProcess]:
    """Run a host that may open 256 files, with the plugin above."""
    packages, entry = folder / "packages", plugin_entry("hoarder", "hoarder")
    write_package(packages, "hoarder", {"hoarder.py": HOARDER}, entry_points=entry)
    limited, environment = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh"), {"PYTHONPATH": str(packages)}
    return host_process(folder, settings, under=limited, environment=environment)


def answers(host: HostProcess) -> bool:
    """Return whether liveness is answered on every listener."""
    try:
        for scheme in ("http", "https"):
            with httpx.Client(verify=host.tls, trust_env=False) as client:
                client.get(f"{host.url('main', scheme)}/q/health/live", timeout=20).raise_for_status()
    except httpx.TransportError:  # of a full backlog, for one: the system asks again after up to half a minute
        return False
    return True


@pytest.mark.parametrize("engine", ["waitress", "granian"])
@pytest.mark.parametrize(("files", "idle"), [(256, 400), (1024, 1100)])
def test_idle_connections_beyond_the_limit_of_files_block_nobody(
    tmp_path: Path, engine: EngineName, files: int, idle: int
) -> None:
    """The host closes them, so that liveness is answered on every listener, and SIGTERM ends the host with 0."""
    settings = {"sites": {"main": {"http_engine": engine}}}
    limited = ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh")
    with host_process(tmp_path, settings, under=limited) as host, ExitStack() as stack:
        for scheme in ("http", "https"):
            for _ in range(idle):
                stack.enter_context(socket.create_connection(("127.0.0.1", host.port("main", scheme)), timeout=20))
        wait_until(lambda: answers(host))
        assert host.stop() == 0


@pytest.mark.parametrize("engine", ["waitress", "granian"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_more_connections_than_a_backlog_holds_block_nobody(tmp_path: Path, engine: EngineName, scheme: str) -> None:
    """A listener that has paused accepts again, though nobody can connect before it does."""
    limited = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    settings = {"sites": {"main": {"http_engine": engine}}}
    with host_process(tmp_path, settings, under=limited) as host, ExitStack() as stack:
        for _ in range(1500):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", host.port("main", scheme)))
        wait_until(lambda: answers(host))
        assert host.stop() == 0


def test_three_sites_leave_descriptors_for_other_files(tmp_path: Path) -> None:
    """The limits of all open listeners, those of the site admin too, together leave 64 descriptors."""
    limited = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    with host_process(tmp_path, {"plugins": {"health": {"site": "admin"}}}, under=limited) as host:
        assert host.stop() == 0
    limits = [int(number) for number in re.findall(r"takes (\d+) connections", host.errors.read_text())]
    assert len(limits) == 6
    assert sum(limits) <= 256 - 64


def test_a_site_that_a_reload_opens_takes_no_descriptors_of_other_files(tmp_path: Path) -> None:
    """Its listeners get what the open ones leave: the least that a listener has, if those may take all."""
    limited = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    with host_process(tmp_path, under=limited) as host:
        write_settings(tmp_path, {"plugins": {"health": {"site": "admin"}}})
        assert host.ask("reload")["swapped"]
        assert host.stop() == 0
    limits = re.findall(r"takes (\d+) connections", host.errors.read_text())
    assert [int(number) for number in limits] == [48] * 4 + [8] * 2


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_a_reload_that_gets_too_few_descriptors_changes_nothing(tmp_path: Path, engine: EngineName) -> None:
    """However few are left, the host goes on, and the site that the reload could not open is opened by a later one."""
    ports = {"http_port": free_port(), "https_port": free_port(), "http_engine": engine}
    with hoarding_process(tmp_path, {}) as host:
        write_settings(tmp_path, {"sites": {"admin": ports}, "plugins": {"health": {"site": "admin"}}})
        problems = []
        for left in range(3, 63, 3):
            with httpx.Client(trust_env=False, timeout=20) as client:
                assert client.put(f"{host.url()}/hoard", params={"left": left}).status_code == 204
            report = host.ask("reload")
            problems += report.get("problems", [])
            if report.get("swapped"):
                break
        assert report.get("swapped"), problems
        refused = [problem for problem in problems if "Cannot serve https" in problem]
        assert refused, problems  # with fewer descriptors, plugins fail before that
        assert all("Too many open files; let this process open more" in problem for problem in refused), problems
        assert host.stop() == 0


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_a_host_stops_cleanly_while_a_plugin_takes_each_descriptor(tmp_path: Path, engine: EngineName) -> None:
    """It reports no requests as cut off, and no error: its threads are waited for even if none can be looked at."""
    settings = {"sites": {"main": {"http_engine": engine}}}
    with hoarding_process(tmp_path, settings) as host:
        with httpx.Client(trust_env=False) as client:
            assert client.put(f"{host.url()}/hoard", params={"left": 0, "then": 256}).status_code == 204
            assert host.stop() == 0
        host.no_tracebacks()


def shake_hands(connection: socket.socket, host: HostProcess, stack: ExitStack) -> None:
    """Complete the handshake of a connection, unless the host has no descriptor for it."""
    connection.settimeout(1)
    with suppress(OSError):
        stack.callback(host.tls.wrap_socket(connection, server_hostname="127.0.0.1").close)


def open_idle(host: HostProcess, scheme: str, stack: ExitStack) -> None:
    """Open connections to a listener, as far as the host has descriptors for their handshakes, and leave them idle."""
    for _ in range(IDLE):
        idle = socket.create_connection(("127.0.0.1", host.port("main", scheme)), timeout=20)
        stack.callback(idle.close)
        if scheme == "https":  # else the time that a handshake may take would end it
            shake_hands(idle, host, stack)


@pytest.mark.parametrize("engine", ["waitress", "granian"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("left", [0, IDLE // 2])
def test_a_listener_below_its_limit_closes_idle_connections_when_no_descriptor_is_left(
    tmp_path: Path, engine: EngineName, scheme: str, left: int
) -> None:
    """Else, if a plugin or another listener holds all others, nobody would be answered until they time out."""
    settings = {"sites": {"main": {"http_engine": engine, "idle_timeout": 3600}}}
    with hoarding_process(tmp_path, settings) as host, ExitStack() as stack:
        client = stack.enter_context(httpx.Client(trust_env=False))
        client.get(f"{host.url('main', 'http')}/q/health/live").raise_for_status()
        if not left:
            open_idle(host, scheme, stack)
        assert client.put(f"{host.url('main', 'http')}/hoard", params={"left": left}).status_code == 204
        if left:
            open_idle(host, scheme, stack)
        wait_until(lambda: answers(host))
        assert host.stop() == 0


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_a_lasting_crowd_is_logged_once_by_each_listener(tmp_path: Path, engine: EngineName) -> None:
    """However often connections are closed and opened, a listener logs only once that it accepts no more."""
    limited = ("sh", "-c", 'ulimit -n 256; exec "$@"', "sh")
    with host_process(tmp_path, {"sites": {"main": {"http_engine": engine}}}, under=limited) as host:
        for _ in range(3):
            with ExitStack() as stack:
                for number in range(800):
                    address = "127.0.0.1", host.port("main", "http" if number < 400 else "https")
                    stack.enter_context(socket.create_connection(address, timeout=20))
                wait_until(lambda: answers(host))
        host.stop()
    lines = host.errors.read_text().splitlines()
    for port in (host.port("main", scheme) for scheme in ("http", "https")):
        assert sum("accepts" in line and f"port {port} " in line for line in lines) <= 1, lines
    assert any("accepts little" in line for line in lines), lines
    assert not [line for line in lines if "connection limit" in line]
