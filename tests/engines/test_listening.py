"""A port is opened or refused with a clear message, and an engine leaves nothing behind."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import socket
import ssl
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import pytest
from tests.engines.dispatching import PlainApplication, open_with_own_dispatcher
from tests.lanes import LANES, Lane
from waitress.server import TcpWSGIServer

from plughost._api.host import Listener
from plughost._runtime.sockets import HANDED_OVER, Sockets, inherit
from plughost._servers import EngineOptions, ListenError, TLSFiles
from plughost._servers.connections import (
    BACKLOG,
    backlog_size,
    clients,
    connect_once,
    drop_new_connections,
    open_socket,
)
from plughost._servers.waitress import WaitressEngine

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from tests.engines.conftest import Gate, Serve, WaitUntil

    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.granian import GranianEngine


def listener(lane: Lane, port: int = 0, address: str = "127.0.0.1") -> Listener:
    """Return the listener of a lane."""
    return Listener(site="main", scheme=lane.scheme, address=address, port=port, engine=lane.engine)


def test_two_engines_on_one_port_are_refused(serve: Serve, http1_lane: Lane, gate: Gate) -> None:
    """The second one's error names the port and the remedy; the first one continues to serve."""
    served = serve(gate, http1_lane)
    with pytest.raises(ListenError, match=rf"127\.0\.0\.1, port {served.engine.port} .*another program uses the port"):
        open_socket(listener(http1_lane, served.engine.port))
    assert served.client().get("/first").text == "/first"


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("192.0.2.1", "this machine does not have that address"),
        ("no-such-host.invalid", "the address is unknown"),
    ],
)
def test_an_unavailable_address_is_named(http1_lane: Lane, address: str, advice: str) -> None:
    """The message names the address, and says what is wrong with it."""
    with pytest.raises(ListenError, match=f"{address}.*{advice}"):
        open_socket(listener(http1_lane, address=address))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this system has no IPv6")
@pytest.mark.parametrize("lane", LANES[:2], ids=str)
def test_all_addresses_of_a_machine_include_those_of_ipv4(environ_app: WSGIApplication, lane: Lane) -> None:
    """On `::`, clients are served over IPv6 and IPv4, and each is known by its own address."""
    engine = open_with_own_dispatcher(environ_app, listener(lane, address="::"))
    with contextlib.closing(httpx.Client()) as client:
        seen = [client.get(f"http://{host}:{engine.port}").json()["REMOTE_ADDR"] for host in ("127.0.0.1", "[::1]")]
    assert engine.drain(20)
    assert seen == ["127.0.0.1", "::1"]


def test_an_unusable_certificate_is_reported(gate: Gate, certificate: TLSFiles, tmp_path: Path) -> None:
    """The key is invalid, or a file is missing."""
    broken = tmp_path / "key.pem"
    broken.write_text("nothing")
    for key in (broken, tmp_path / "missing.pem"):
        files = TLSFiles(certificate=certificate.certificate, key=key)
        with pytest.raises(ListenError, match="certificate and its key"):
            open_with_own_dispatcher(gate, listener(Lane("granian", "https")), files)


@pytest.mark.parametrize("lane", LANES, ids=str)
def test_without_further_threads_a_listener_is_refused(gate: Gate, certificate: TLSFiles, lane: Lane) -> None:
    """The message says so before an engine starts, which could end the process or hold it up; later, it is opened."""
    where = listener(lane)
    files = certificate if lane.scheme == "https" else None
    usual = threading.stack_size(2**46)  # the system has no memory for that
    try:
        with pytest.raises(ListenError, match="does not allow 16 further threads") as refused:
            open_with_own_dispatcher(gate, where, files)
    finally:
        threading.stack_size(usual)
    assert isinstance(refused.value.__cause__, RuntimeError)
    assert open_with_own_dispatcher(gate, where, files).drain(20)


def test_an_inherited_socket_is_served(http1_lane: Lane, certificate: TLSFiles, gate: Gate) -> None:
    """An engine uses an inherited listening socket as it is, and serves the clients in its backlog."""
    handed = socket.create_server(("127.0.0.1", 0))
    port = handed.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as early:
        engine = open_with_own_dispatcher(gate, listener(http1_lane, port), certificate, handed)
        assert engine.port == port
        if http1_lane.scheme == "https":
            context = ssl.create_default_context(cafile=certificate.certificate)
            early = context.wrap_socket(early, server_hostname="127.0.0.1")  # noqa: PLW2901 - the same connection
        early.sendall(b"GET /early HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert early.recv(15) == b"HTTP/1.1 200 OK"
        early.close()
    assert engine.drain(2)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="file descriptors are counted in /proc")
def test_starting_and_stopping_leaves_nothing_behind(
    http1_lane: Lane, certificate: TLSFiles, gate: Gate, wait_until: WaitUntil
) -> None:
    """Ten starts and stops on one port leave no thread and no file descriptor."""

    def live(port: int = 0) -> int:
        engine = open_with_own_dispatcher(gate, listener(http1_lane, port), certificate)
        with socket.create_connection(("127.0.0.1", engine.port), timeout=20):
            assert engine.drain(5)
        return engine.port

    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    def threads() -> int:
        return sum(1 for _ in Path("/proc/self/task").iterdir())

    port = live()
    before = descriptors(), threading.active_count(), threads()
    for _ in range(10):
        live(port)
    wait_until(lambda: descriptors() <= before[0] and threading.active_count() <= before[1] and threads() <= before[2])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows native threads")
def test_a_drain_waits_for_native_threads(certificate: TLSFiles, gate: Gate) -> None:
    """No thread of granian's is left: it would abort the process when the interpreter ends."""
    engine = open_with_own_dispatcher(gate, listener(Lane("granian", "http")), certificate)

    def natives() -> list[str]:
        names = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
        return [name for name in names if name.endswith(f"-{engine.port}\n")]

    assert natives()
    engine.drain(5)
    assert not natives()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")  # its refusal is the point
@pytest.mark.parametrize(("version", "spoken"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
def test_tls_1_2_is_the_minimum(serve: Serve, gate: Gate, https_lane: Lane, version: str, *, spoken: bool) -> None:
    """TLS 1.2 and 1.3 are accepted, 1.1 is not (CONTRACT 1)."""
    served = serve(gate, https_lane)
    context = ssl.create_default_context(cafile=served.certificate)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.maximum_version = ssl.TLSVersion[version]
    context.minimum_version = context.maximum_version
    with socket.create_connection(("127.0.0.1", served.engine.port), timeout=20) as raw:
        if not spoken:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(raw, server_hostname="127.0.0.1")
        else:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
                assert secure.version() == version.replace("_", ".")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no way to turn connections away")
def test_a_closing_port_refuses_new_clients_without_a_reset() -> None:
    """Connections in the backlog are served; later ones are refused before they can send a request."""
    closing, sockets = Listener(site="main", scheme="http", address="127.0.0.1", port=0, engine="waitress"), Sockets()
    sockets.bind(closing)
    with sockets.duplicate(closing) as listening:
        address = listening.getsockname()
        listening.settimeout(20)
        with socket.create_connection(address) as early, socket.socket() as late:
            early.sendall(b"early")
            sockets.release(closing)
            late.setblocking(False)
            late.connect_ex(address)
            with listening.accept()[0] as accepted:
                assert accepted.recv(5) == b"early"
            listening.close()
            late.setblocking(True)
            select.select([], [late], [], 20)
            assert late.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no way to turn connections away")
def test_a_handshake_begun_before_a_port_closes_is_completed() -> None:
    """A client whose first packet was answered is accepted, however late its next packet is handled."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # The system holds a new connection until data comes, as it does for a moment on a busy machine.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 20)
        listening.settimeout(20)
        with socket.create_connection(listening.getsockname()) as begun:
            drop_new_connections(listening)
            begun.sendall(b"begun")
            with listening.accept()[0] as accepted:
                assert accepted.recv(5) == b"begun"


def test_a_socket_of_systemd_is_no_more_public_than_the_settings(http1_lane: Lane) -> None:
    """With an address for this machine alone, warnings would be missing, and `--dev` would show its demo users."""
    name = f"main-{http1_lane.scheme}"
    with (
        socket.create_server(("0.0.0.0", 0)) as lent,
        pytest.raises(ListenError, match=rf'{name} .*\(0\.0\.0\.0\).* set sites\.main\.address = "0\.0\.0\.0"'),
    ):
        Sockets([(name, lent)]).bind(listener(http1_lane))


def test_a_public_socket_of_systemd_is_served_if_the_settings_are_as_public() -> None:
    """They say that the administrator wants that."""
    public = Listener(site="main", scheme="http", address="0.0.0.0", port=0, engine="waitress")
    with socket.create_server(("0.0.0.0", 0)) as lent:
        sockets = Sockets([("main-http", lent)])
        sockets.bind(public)
        with sockets.duplicate(public) as served:
            assert served.getsockname() == lent.getsockname()
        assert sockets.unused() == []
        sockets.release(public)


def test_a_socket_of_systemd_accepts_connections_after_a_stop() -> None:
    """The system manager keeps it, and starts the host again when a client connects."""
    served = Listener(site="main", scheme="http", address="127.0.0.1", port=0, engine="waitress")
    with socket.create_server(("127.0.0.1", 0)) as lent:
        sockets = Sockets([("main-http", lent)])
        sockets.bind(served)
        sockets.release(served)
        lent.settimeout(20)
        with socket.create_connection(lent.getsockname(), 20) as client, lent.accept()[0] as accepted:
            assert accepted.getpeername() == client.getsockname()


def test_an_inherited_socket_with_another_address_than_the_settings_is_not_used() -> None:
    """A restart opens the new address, and closes the socket that the predecessor had opened."""
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        moved = Listener(
            site="main", scheme="http", address="127.0.0.2", port=inherited.getsockname()[1], engine="waitress"
        )
        sockets = Sockets([("main-http.handed", inherited)])
        sockets.bind(moved)
        with sockets.duplicate(moved) as served:
            assert served.getsockname()[0] == "127.0.0.2"
        sockets.take_ownership()
        assert inherited.fileno() == -1
        sockets.release(moved)


def test_child_processes_do_not_get_inherited_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a plugin starts would keep the port after the host's end."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        passed = os.dup(opened.fileno())
    os.set_inheritable(passed, True)
    monkeypatch.setenv(HANDED_OVER, json.dumps([("main-http.handed", passed)]))
    ((name, inherited),), others = inherit()
    with inherited:
        assert (name, inherited.get_inheritable(), others) == ("main-http.handed", False, {})


def test_sockets_of_systemd_for_another_process_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that started this one may have left the variables, without the sockets."""
    monkeypatch.setenv("LISTEN_PID", str(os.getppid()))
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert inherit() == ([], {})


def test_no_part_of_a_response_waits_for_an_acknowledgement() -> None:
    """Connections inherit TCP_NODELAY from their listener, whatever engine accepts them."""
    with (
        contextlib.closing(open_socket(listener(Lane("granian", "http")))) as listening,
        socket.create_connection(listening.getsockname()),
        contextlib.closing(listening.accept()[0]) as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_waitress_accepts_many_connections_at_once(environ_app: WSGIApplication, dispatcher: Dispatcher) -> None:
    """With one connection a turn, the last client would wait for as many answers."""
    lane = listener(Lane("waitress", "http"))
    engine = WaitressEngine(PlainApplication(environ_app), lane, open_socket(lane), EngineOptions(), dispatcher)
    with contextlib.ExitStack() as stack, engine._loop_lock:  # no other thread runs the loop meanwhile
        stack.callback(engine.drain, 2)
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", engine.port)))
        server = engine._server
        while not server.active_channels:  # the first turn may be for the loop's own trigger
            server.run_loop_once()
        assert len(server.active_channels) == 20


@pytest.mark.skipif(sys.platform != "linux", reason="connections are read from /proc")
@pytest.mark.parametrize("lane", LANES[1:3], ids=str)
def test_a_client_that_connects_during_a_pause_waits_for_its_end(serve: Serve, gate: Gate, lane: Lane) -> None:
    """Connected clients are answered meanwhile; it can be repeated."""
    served = serve(gate, lane)
    engine = cast("GranianEngine", served.engine)
    with served.client() as early:
        early.get("/")
        for _ in range(2):
            engine.pause()
            connected = clients(engine.port)
            assert early.get("/").text == "/"
            with socket.create_connection(("127.0.0.1", engine.port), timeout=20) as raw:
                assert early.get("/").text == "/"
                now = clients(engine.port)
                assert now, "the early client is connected"
                assert now <= connected, "the late one of the first round may have left since"
                engine.resume()
                with served.secure(raw) as late:
                    late.sendall(b"GET /late HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                    assert late.recv(15) == b"HTTP/1.1 200 OK"


def test_a_pause_is_not_ended_by_the_maintenance(
    serve: Serve, https_lane: Lane, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is about to be replaced stays paused, even while it looks whether there is room for clients."""
    monkeypatch.setattr(EngineOptions, "eviction_interval", 0.0)  # it looks all the time
    engine = cast("GranianEngine", serve(gate, https_lane).engine)
    with contextlib.ExitStack() as stack:
        for _ in range(100):  # the more there are, the longer a look takes
            stack.enter_context(socket.create_connection(("127.0.0.1", engine.port), timeout=20))
        for _ in range(100):
            engine.pause()
            assert engine._worker.is_paused
            engine.resume()


def test_a_udp_socket_of_the_same_port_number_is_no_connection(serve: Serve, https_lane: Lane, gate: Gate) -> None:
    """A plugin may have a connected one, and the engine is drained nevertheless."""
    served = serve(gate, https_lane)
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", served.engine.port))
        datagrams.connect(("127.0.0.1", 9))
        assert not clients(served.engine.port)
        assert served.client().get("/").text == "/"
        assert served.engine.drain(20)


def test_waitress_trigger_stays_open_while_it_is_in_use(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may pull it while a drain ends: its byte would reach the next owner of the descriptor."""
    engine = cast(
        "WaitressEngine",
        open_with_own_dispatcher(gate, listener(LANES[0])),
    )
    server = engine._server
    wakes, go_on, found = threading.Event(), threading.Event(), list[bool]()

    def pull_trigger(woken: TcpWSGIServer) -> None:
        if threading.current_thread() is waking:
            wakes.set()
            go_on.wait(20)
            found.append(Path(f"/dev/fd/{woken.trigger.trigger}").exists())

    def wake() -> None:
        while not wakes.is_set():  # the loop nearly always runs
            server.pull_trigger()

    monkeypatch.setattr(TcpWSGIServer, "pull_trigger", pull_trigger)
    waking, draining = threading.Thread(target=wake), threading.Thread(target=engine.drain, args=(0.1,))
    waking.start()
    assert wakes.wait(20)
    draining.start()
    draining.join(1.0)  # it returns at once if it doesn't wait for that thread
    go_on.set()
    waking.join()
    draining.join()
    assert found == [True]


def test_a_listener_with_a_full_backlog_is_told_of_a_connection_each_time() -> None:
    """Though nobody accepts meanwhile: else one that paused again before it accepted would stay deaf."""
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listening, ExitStack() as stack:
        for _ in range(BACKLOG + 1):
            stack.enter_context(socket.create_connection(listening.getsockname(), 20))
        for number in range(1, 4):
            with socket.socket() as client:
                connect_once(client, listening)
            assert backlog_size(listening) == BACKLOG + 1 + number
