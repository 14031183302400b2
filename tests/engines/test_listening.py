"""Ports are had or refused in words, and an engine leaves nothing behind."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from tests.engines.conftest import LANES, Lane
from tests.engines.dispatching import Plain, open_alone
from waitress.server import TcpWSGIServer

from plughost._api.host import Listener
from plughost._servers import EngineOptions, ListenError, TLSFiles
from plughost._servers.connections import clients, drop_new_connections, open_socket
from plughost._servers.waitress import WaitressEngine

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from tests.engines.conftest import Gate, Serve, Until

    from plughost._servers.dispatcher import Dispatcher
    from plughost._servers.granian import GranianEngine


def listener(lane: Lane, port: int = 0, address: str = "127.0.0.1") -> Listener:
    """Return a listener of a lane."""
    return Listener(site="main", scheme=lane.scheme, address=address, port=port, engine=lane.engine)


def test_two_engines_on_one_port_are_refused(serve: Serve, lane1: Lane, certificate: TLSFiles, gate: Gate) -> None:
    """The second one says which port, and what to do; the first serves on."""
    served = serve(gate, lane1)
    second = open_alone(gate, listener(lane1, served.engine.port), certificate)
    with pytest.raises(ListenError, match=rf"127\.0\.0\.1, port {served.engine.port} .*another program uses the port"):
        second.start()
    assert served.client().get("/first").text == "/first"


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_cannot_be_had_is_named(lane1: Lane, certificate: TLSFiles, gate: Gate, address: str) -> None:
    """The message names the address."""
    with pytest.raises(ListenError, match=address):
        open_alone(gate, listener(lane1, address=address), certificate).start()


def test_waitress_refuses_https(certificate: TLSFiles, gate: Gate) -> None:
    """The message names the engine to set."""
    with pytest.raises(ListenError, match="granian"):
        open_alone(
            gate,
            Listener(site="main", scheme="https", address="127.0.0.1", port=0, engine="waitress"),
            certificate,
        )


def test_https_needs_a_certificate(gate: Gate) -> None:
    """Without one, nothing is opened."""
    with pytest.raises(ListenError, match="certificate"):
        open_alone(
            gate,
            Listener(site="main", scheme="https", address="127.0.0.1", port=0, engine="granian"),
        )


def test_a_certificate_that_cannot_be_used_is_reported(gate: Gate, certificate: TLSFiles, tmp_path: Path) -> None:
    """A key that is none, and a file that is not there."""
    broken = tmp_path / "key.pem"
    broken.write_text("nothing")
    for key in (broken, tmp_path / "missing.pem"):
        engine = open_alone(
            gate,
            Listener(site="main", scheme="https", address="127.0.0.1", port=0, engine="granian"),
            TLSFiles(certificate=certificate.certificate, key=key),
        )
        with pytest.raises(ListenError, match="certificate and its key"):
            engine.start()


def test_an_inherited_socket_is_served(lane1: Lane, certificate: TLSFiles, gate: Gate) -> None:
    """A listening socket from elsewhere is used as it is, with who waits in its backlog."""
    handed = socket.create_server(("127.0.0.1", 0))
    port = handed.getsockname()[1]
    engine = open_alone(gate, listener(lane1, port), certificate)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as early:
        engine.start(handed)
        assert engine.port == port
        if lane1.scheme == "https":
            context = ssl.create_default_context(cafile=certificate.certificate)
            early = context.wrap_socket(early, server_hostname="127.0.0.1")  # noqa: PLW2901 - the same connection
        early.sendall(b"GET /early HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert early.recv(15) == b"HTTP/1.1 200 OK"
        early.close()
    assert engine.drain(2)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="file descriptors are counted in /proc")
def test_starting_and_stopping_leaves_nothing_behind(
    lane1: Lane, certificate: TLSFiles, gate: Gate, until: Until
) -> None:
    """Ten lives on one port leave no thread and no file descriptor."""

    def live(port: int = 0) -> int:
        engine = open_alone(gate, listener(lane1, port), certificate)
        engine.start()
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
    until(lambda: descriptors() <= before[0] and threading.active_count() <= before[1] and threads() <= before[2])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows native threads")
def test_a_drain_waits_for_native_threads(certificate: TLSFiles, gate: Gate) -> None:
    """None of granian's is left: one that met the end of the interpreter would abort the process."""
    engine = open_alone(gate, listener(Lane("granian", "http")), certificate)

    def natives() -> list[str]:
        names = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
        return [name for name in names if name.endswith(f"-{engine.port}\n")]

    engine.start()
    assert natives()
    engine.drain(5)
    assert not natives()


def test_an_engine_starts_again_after_its_drain(lane1: Lane, certificate: TLSFiles, gate: Gate) -> None:
    """The same object serves a second time."""
    engine = open_alone(gate, listener(lane1), certificate)
    for _ in range(2):
        engine.start()
        socket.create_connection(("127.0.0.1", engine.port), timeout=20).close()
        assert engine.drain(5)


def test_draining_what_never_started_is_nothing(lane1: Lane, certificate: TLSFiles, gate: Gate) -> None:
    """It answers that nothing was lost."""
    assert open_alone(gate, listener(lane1), certificate).drain(1)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")  # that it is refused is the point
@pytest.mark.parametrize(("version", "spoken"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
def test_tls_1_2_is_the_least(serve: Serve, gate: Gate, https_lane: Lane, version: str, *, spoken: bool) -> None:
    """TLS 1.2 and 1.3 are spoken, 1.1 is not (CONTRACT 1)."""
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
def test_who_comes_while_a_port_is_being_closed_is_refused_and_not_reset() -> None:
    """What waits to be accepted is served, and no later connection is let in only to be cut off with its request."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        with socket.create_connection(address) as early, socket.socket() as late:
            early.sendall(b"early")
            drop_new_connections(listening)
            late.setblocking(False)
            late.connect_ex(address)
            with listening.accept()[0] as accepted:
                assert accepted.recv(5) == b"early"
            listening.close()
            late.setblocking(True)
            select.select([], [late], [], 20)
            assert late.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no way to turn connections away")
def test_a_connection_that_has_begun_before_a_port_is_closed_is_completed() -> None:
    """A client that was answered its first packet is let in, however late the system gets to its next one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # The system holds what has begun until data comes, as it does for a moment on a busy machine.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 20)
        listening.settimeout(20)
        with socket.create_connection(listening.getsockname()) as begun:
            drop_new_connections(listening)
            begun.sendall(b"begun")
            with listening.accept()[0] as accepted:
                assert accepted.recv(5) == b"begun"


def test_no_part_of_a_response_waits_for_an_acknowledgement() -> None:
    """Connections inherit TCP_NODELAY from their listener, whatever engine accepts them."""
    with (
        contextlib.closing(open_socket(listener(Lane("granian", "http")))) as listening,
        socket.create_connection(listening.getsockname()),
        contextlib.closing(listening.accept()[0]) as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_waitress_accepts_a_crowd_in_one_turn_of_its_loop(environ_app: WSGIApplication, dispatcher: Dispatcher) -> None:
    """With one connection a turn, the last of them would wait until others were answered as many times."""
    engine = WaitressEngine(Plain(environ_app), listener(Lane("waitress", "http")), EngineOptions(), dispatcher)
    with contextlib.ExitStack() as stack, engine._loop_lock:  # no other thread turns it meanwhile
        engine.start()
        stack.callback(engine.drain, 2)
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", engine.port)))
        server = engine._server
        assert server is not None
        while not server.active_channels:  # the first turn may be for the loop's own trigger
            server.run_loop_once()
        assert len(server.active_channels) == 20


@pytest.mark.skipif(sys.platform != "linux", reason="who is connected is found in /proc")
@pytest.mark.parametrize("lane", LANES[1:3], ids=str)
def test_who_comes_during_a_pause_is_answered_after_it(serve: Serve, gate: Gate, lane: Lane) -> None:
    """Meanwhile those are answered who were connected, and the pause names them; it can be had again."""
    served = serve(gate, lane)
    engine = cast("GranianEngine", served.engine)
    with served.client() as early:
        early.get("/")
        for _ in range(2):
            connected = engine.pause()
            assert early.get("/").text == "/"
            with socket.create_connection(("127.0.0.1", engine.port), timeout=20) as raw:
                assert early.get("/").text == "/"
                assert clients(engine.port) == connected
                engine.resume()
                with served.secure(raw) as late:
                    late.sendall(b"GET /late HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                    assert late.recv(15) == b"HTTP/1.1 200 OK"


def test_what_wakes_waitress_is_open_for_as_long_as_somebody_wakes_it(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that has just answered does, while a drain ends: its byte would go to who has the descriptor next."""
    engine = cast(
        "WaitressEngine",
        open_alone(gate, listener(LANES[0])),
    )
    engine.start()
    server = engine._server
    assert server is not None
    wakes, go_on, found = threading.Event(), threading.Event(), list[bool]()

    def pull_trigger(woken: TcpWSGIServer) -> None:
        if threading.current_thread() is waking:
            wakes.set()
            go_on.wait(20)
            found.append(Path(f"/dev/fd/{woken.trigger.trigger}").exists())

    def wake() -> None:
        while not wakes.is_set():  # the loop turns nearly always
            server.pull_trigger()

    monkeypatch.setattr(TcpWSGIServer, "pull_trigger", pull_trigger)
    waking, draining = threading.Thread(target=wake), threading.Thread(target=engine.drain, args=(0.1,))
    waking.start()
    assert wakes.wait(20)
    draining.start()
    draining.join(1.0)  # which it does at once where it doesn't wait for that thread
    go_on.set()
    waking.join()
    draining.join()
    assert found == [True]
