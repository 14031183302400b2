"""A client may read a long response slowly, whatever its parts are; it costs little memory meanwhile."""

from __future__ import annotations

import inspect
import re
import socket
import sys
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import h2.config
import h2.connection
import h2.events
import pytest
from tests.lanes import LANES, Lane

from plughost._servers.granian_response import RequestJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse

    from tests.engines.conftest import Environ, Serve, Served, WaitUntil

PART = 2_000_000
PARTS = 8


def long_list(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Answer with few, large parts."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return (bytes(PART) for _ in range(PARTS))


class Reader:
    """A client that reads a given amount of a response."""

    def __init__(self, served: Served) -> None:
        """Send a request over HTTP/1.0, so that the connection ends with the response, or over HTTP/2."""
        self._shared: h2.connection.H2Connection | None = None
        self._socket = served.connect(protocol="h2" if served.lane.http2 else "http/1.1")
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        self.taken = 0
        self.ended = False
        if served.lane.http2:
            self._shared = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
            self._shared.initiate_connection()
            self.repeat(1)
        else:
            self._socket.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect."""
        self._socket.close()

    def repeat(self, times: int) -> None:
        """Send the request again, on further streams of HTTP/2."""
        assert self._shared is not None
        fields = {":method": "GET", ":scheme": "https", ":authority": "x", ":path": "/"}
        for _ in range(times):
            self._shared.send_headers(
                self._shared.get_next_available_stream_id(), list(fields.items()), end_stream=True
            )
        self._socket.sendall(self._shared.data_to_send())

    def hurry(self) -> None:
        """From now on, read as much at once as the system allows."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)

    def ping(self) -> None:
        """Send an HTTP/2 frame that has nothing to do with the response, and read what arrives."""
        assert self._shared is not None
        self._shared.ping(b"anything")
        self._socket.sendall(self._shared.data_to_send())
        self._shared.receive_data(self._socket.recv(1 << 20))

    def read(self, most: int) -> None:
        """Read at most this many bytes of the response; raise if it was cut off."""
        received = self._socket.recv(most)
        if self._shared is None:
            self.taken += len(received)
            self.ended = not received
            return
        for event in self._shared.receive_data(received):
            assert not isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated), event
            if isinstance(event, h2.events.DataReceived):
                self.taken += len(event.data)
                self._shared.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.ended = self.ended or isinstance(event, h2.events.StreamEnded)
        self._socket.sendall(self._shared.data_to_send())


def test_a_long_part_is_sent_in_slices(serve: Serve, lane: Lane) -> None:
    """Others get the interpreter between them; while the client doesn't read, most of the part is left alone."""
    copied: list[int] = []

    class Part(bytes):
        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            copied.append(len(found))
            return found

    def one_part(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return iter([Part(64 * 1024 * 1024)])

    with Reader(serve(one_part, lane)) as reader:
        while not reader.taken:
            reader.read(10_000)
        assert 0 < sum(copied) < 32 * 1024 * 1024


def test_a_steady_slow_reader_gets_everything(serve: Serve, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads a tenth of a part in each idle time-out, at twice the minimum rate."""
    monkeypatch.setattr("plughost._servers.base._RATE_GRACE_SECONDS", 0.5)
    monkeypatch.setattr("plughost._servers.base._MIN_RATE", 50_000)
    pace = threading.Event()
    with Reader(serve(long_list, lane, idle_timeout=2)) as reader:
        until = monotonic() + 4  # on a busy machine, it reads less often, and for no longer
        while monotonic() < until:
            reader.read(10_000)
            pace.wait(0.1)
        reader.hurry()
        while not reader.ended:
            reader.read(1 << 20)
        assert reader.taken > PARTS * PART - 1


@pytest.mark.parametrize("blocking_plugins", [{}, {"": ()}], ids=["in turn", "in pool"])
def test_endless_streams_block_no_other_request(
    serve: Serve,
    lane: Lane,
    release: threading.Event,
    wait_until: WaitUntil,
    blocking_plugins: dict[str, tuple[str, ...]],
) -> None:
    """A plugin serves more fast readers than it has threads at the same time, and other requests besides."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        if environ["PATH_INFO"] == "/":
            return (bytes(1000) for _ in iter(partial(release.wait, 0.001), True))
        return [b"other"]

    def read(reader: Reader) -> None:
        reader.hurry()
        while not reader.ended:
            reader.read(1 << 20)

    served = serve(application, lane, threads=2, blocking_plugins=blocking_plugins)
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(served)) for _ in range(4)]
        threads = [threading.Thread(target=read, args=(reader,), daemon=True) for reader in readers]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(reader.taken for reader in readers))
        before = [reader.taken for reader in readers]
        assert served.client().get("/other").text == "other"
        wait_until(lambda: all(reader.taken > taken for reader, taken in zip(readers, before, strict=True)))
        release.set()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


def memory(kind: str) -> int:
    """Return the process's current or peak memory, in bytes."""
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


class Endless:
    """An application whose responses have no end.

    Attributes:
        made: How many parts were made.
        ended: Released for each response that was given up.
    """

    def __init__(self, part: bytes) -> None:
        """Store the part to repeat."""
        self.made = 0
        self.ended = threading.Semaphore(0)
        self._part = part

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer."""
        start_response("200 OK", [("Content-Type", "text/plain")])
        return self._parts()

    def _parts(self) -> Iterator[bytes]:
        try:
            while True:
                self.made += 1
                yield self._part
        finally:
            self.ended.release()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the peak memory since a reset")
def test_clients_that_read_nothing_cost_little_memory(serve: Serve, lane: Lane) -> None:
    """Less than one large part is held for each client, until it is disconnected."""
    application = Endless(bytes(2 * PART))
    served = serve(application, lane, idle_timeout=1)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(Reader(served))
        for _ in range(20):
            assert application.ended.acquire(timeout=20)
    assert memory("VmHWM") - before < 20 * 2 * PART


def test_a_stream_without_a_window_is_aborted(
    serve: Serve, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier progress and other traffic on its connection don't change this."""
    monkeypatch.setattr("plughost._servers.base._RATE_GRACE_SECONDS", 0.5)
    monkeypatch.setattr("plughost._servers.base._MIN_RATE", 500_000)
    application = Endless(bytes(PART))
    with Reader(serve(application, LANES[3])) as reader:
        reader.hurry()
        while reader.taken < 10 * PART:
            reader.read(1 << 20)

        def is_given_up() -> bool:
            reader.ping()
            return application.ended.acquire(blocking=False)

        wait_until(is_given_up)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't tell how much a client has read")
def test_responses_that_nobody_takes_are_bounded(
    serve: Serve, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leaves most of them loses its connection, though it goes on sending pings, and nobody else does."""
    monkeypatch.setattr("plughost._servers.granian._MAX_UNTAKEN_BYTES", 5_000_000)

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [bytes(60_000)]

    served = serve(application, LANES[3])
    with Reader(served) as modest, Reader(served) as greedy:
        modest.repeat(10)
        greedy.repeat(100)

        def is_closed() -> bool:
            try:
                greedy.ping()
            except OSError:
                return True
            return False

        wait_until(is_closed)
        modest.hurry()
        while modest.taken < 11 * 60_000:
            modest.read(1 << 20)
        assert modest.taken == 11 * 60_000


@pytest.mark.skipif(sys.platform != "linux", reason="other systems buffer any amount")
@pytest.mark.parametrize("lane", LANES[1:], ids=str)
def test_granian_produces_little_ahead_of_its_reader(serve: Serve, lane: Lane) -> None:
    """If nobody reads a response, at most 1.5 MB of it are produced, including the system's buffers."""
    application = Endless(bytes(10_000))
    with Reader(serve(application, lane, idle_timeout=1)):
        assert application.ended.acquire(timeout=20)
    assert application.made < 150


def test_a_client_that_reads_quickly_causes_no_recursion(
    serve: Serve, lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the buffer has room again before the wait for it, the stack does not get deeper with each part."""
    pause, depths = RequestJob._wait_for_room, set[int]()

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return parts()

    def late(call: RequestJob, room: Any) -> None:
        tick = threading.Event()
        while not room.done():
            tick.wait(0.0001)
        pause(call, room)

    def parts() -> Iterator[bytes]:
        for _ in range(500):
            depths.add(len(inspect.stack(0)))
            yield bytes(65536)

    monkeypatch.setattr(RequestJob, "_wait_for_room", late)
    assert len(serve(application, lane).client().get("/").content) == 500 * 65536
    assert max(depths) < 2 * min(depths)
