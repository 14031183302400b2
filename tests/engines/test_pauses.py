"""On each engine, a body with nothing to send holds no thread, and continues when it has something."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

import h2.config
import h2.connection
import h2.events
import pytest

from plughost._waiting import Pause

if TYPE_CHECKING:
    import socket
    from wsgiref.types import StartResponse

    from tests.engines.conftest import Environ, Serve, Served, WaitUntil
    from tests.lanes import Lane


class PausingApplication:
    """An application whose bodies send `one`, pause, and send `two` once they are resumed."""

    def __init__(self, seconds: float = 3600) -> None:
        """Limit the pause to this many seconds."""
        self.pauses: list[Pause] = []
        self.closed: list[int] = []
        self._seconds = seconds

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer; the answer to `/now` has no pause."""
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"now"] if environ["PATH_INFO"] == "/now" else _Body(self, self._seconds)


class _Body:
    def __init__(self, application: PausingApplication, seconds: float) -> None:
        self._application = application
        self._seconds = seconds

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        pause = Pause(self._seconds)
        self._application.pauses.append(pause)
        yield pause
        yield b"two"

    def close(self) -> None:
        self._application.closed.append(id(self))


def test_a_body_continues_after_its_pause(serve: Serve, lane: Lane, wait_until: WaitUntil) -> None:
    """The first part arrives at once, the rest after the pause, and the body is closed once."""
    application = PausingApplication()
    with serve(application, lane).client() as client, client.stream("GET", "/") as answer:
        received = answer.iter_raw()
        assert next(received) == b"one"
        wait_until(lambda: application.pauses)
        application.pauses[0].ready()
        application.pauses[0].ready()
        assert b"".join(received) == b"two"
    wait_until(lambda: len(application.closed) == 1)


def test_a_pause_ends_by_itself(serve: Serve, lane: Lane) -> None:
    """A body continues when its time is over, even if nothing resumes it."""
    assert serve(PausingApplication(seconds=0.1), lane).client().get("/").text == "onetwo"


def test_a_pause_that_is_already_over_is_none(serve: Serve, lane: Lane) -> None:
    """A body that is resumed before its engine sees the pause is not forgotten."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        def body() -> Iterator[bytes]:
            for _ in range(100):
                yield b"x"
                pause = Pause()
                pause.ready()
                yield pause

        start_response("200 OK", [("Content-Type", "text/plain")])
        return body()

    assert serve(application, lane).client().get("/").text == "x" * 100


def test_the_body_of_a_disconnected_client_is_closed(serve: Serve, lane: Lane, wait_until: WaitUntil) -> None:
    """A disconnect during a pause is noticed at once, not at the next part."""
    application = PausingApplication()
    client = serve(application, lane).client()
    with client.stream("GET", "/") as answer:
        received = answer.iter_raw()
        assert next(received) == b"one"
        wait_until(lambda: application.pauses)
    client.close()
    wait_until(lambda: len(application.closed) == 1)


def test_the_body_for_a_client_that_disconnected_earlier_is_closed(
    serve: Serve, lane: Lane, wait_until: WaitUntil
) -> None:
    """A disconnect during a slow request is noticed when its response begins."""
    application, entered, left = PausingApplication(), threading.Event(), threading.Event()

    def slow(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "POST":
            entered.set()
            assert left.wait(20)
        return application(environ, start_response)

    served = serve(slow, lane)
    for _ in range(5):
        entered.clear()
        left.clear()
        application.closed.clear()
        with _Crowd(served, lane) as crowd:
            crowd.ask("/", body=b"4\r\nbody\r\n0\r\n\r\n")
            assert entered.wait(20)
        assert served.client().get("/now").text == "now"  # the request counts as slow by now
        left.set()
        wait_until(lambda: application.closed)
        assert len(application.closed) == 1


def test_a_body_may_end_slowly_after_its_client_has_left(
    serve: Serve, lane: Lane, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """Its request becomes slow only then, and nothing fails."""
    ending: list[object] = []
    release = threading.Event()

    def body() -> Iterator[bytes]:
        try:
            yield b"one"
            yield Pause()
        finally:
            ending.append(None)
            assert release.wait(20)

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"now"] if environ["PATH_INFO"] == "/now" else body()

    served = serve(application, lane)
    for number in (1, 2):  # the second one ends once the first is slow, and the last request is answered once both are
        client = served.client()
        with client.stream("GET", "/") as answer:
            assert next(answer.iter_raw()) == b"one"
        client.close()
        wait_until(lambda number=number: len(ending) == number)  # type: ignore[misc] # a default binds it
    assert served.client().get("/now").text == "now"
    release.set()
    assert caplog.text == ""


def test_paused_bodies_hold_no_thread(serve: Serve, lane: Lane, wait_until: WaitUntil) -> None:
    """Besides 60 paused bodies, over one connection or many, one thread answers others; then all continue.

    A request that a busy machine delays by some milliseconds counts as slow, and 64 others may wait for it.
    """
    application = PausingApplication()
    served = serve(application, lane, threads=1)
    with _Crowd(served, lane) as crowd:
        for _ in range(60):
            crowd.ask("/")
        wait_until(lambda: len(application.pauses) == 60)
        threads = threading.active_count()
        with served.client() as other:
            assert other.get("/now").text == "now"
        assert threading.active_count() <= threads < 50
        for pause in application.pauses:
            pause.ready()
        assert crowd.answers() == [b"onetwo"] * 60
    wait_until(lambda: len(set(application.closed)) == len(application.closed) == 60)


class _Crowd:
    """Requests in flight: streams of one connection over HTTP/2, otherwise each over its own.

    It implements HTTP/2 itself: httpx loses some of many waiting requests on one connection when others end.
    """

    def __init__(self, served: Served, lane: Lane) -> None:
        self._served = served
        self._sockets: list[socket.socket] = []
        self._streams: dict[int, bytes] = {}
        self._shared: h2.connection.H2Connection | None = None
        if lane.http2:
            self._sockets.append(served.connect(protocol="h2"))
            self._shared = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
            self._shared.initiate_connection()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()

    def ask(self, path: str, body: bytes = b"") -> None:
        """Send a request, with a chunked body if one is given."""
        method, coding = ("POST", "Transfer-Encoding: chunked\r\n") if body else ("GET", "")
        if self._shared is None:
            self._sockets.append(self._served.connect())
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{coding}Connection: close\r\n\r\n"
            self._sockets[-1].sendall(head.encode() + body)
            return
        stream = self._shared.get_next_available_stream_id()
        self._streams[stream] = b""
        fields = {":method": method, ":scheme": "https", ":authority": "x", ":path": path}
        self._shared.send_headers(stream, list(fields.items()), end_stream=not body)
        if body:
            self._shared.send_data(stream, body, end_stream=True)
        self._sockets[0].sendall(self._shared.data_to_send())

    def answers(self) -> list[bytes]:
        """Return the bodies of all answers."""
        if self._shared is None:
            return [_body_of(each) for each in self._sockets]
        ended = 0
        while ended < len(self._streams):
            for event in self._shared.receive_data(self._sockets[0].recv(65536)):
                if isinstance(event, h2.events.DataReceived):
                    self._streams[event.stream_id] += event.data
                ended += isinstance(event, h2.events.StreamEnded)
        return [*self._streams.values()]


def _body_of(connection: socket.socket) -> bytes:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.read()


@pytest.mark.parametrize("ended", [True, False])
def test_a_drain_cuts_off_paused_bodies(serve: Serve, lane: Lane, wait_until: WaitUntil, ended: bool) -> None:
    """The engine's drain waits for paused bodies until its grace is over."""
    application = PausingApplication()
    served = serve(application, lane)
    with served.client() as client, client.stream("GET", "/") as answer:
        received = answer.iter_raw()
        assert next(received) == b"one"
        wait_until(lambda: application.pauses)
        if ended:
            application.pauses[0].end()
        assert served.engine.drain(30 if ended else 0.3) is ended


def test_a_client_that_reads_nothing_holds_no_thread(serve: Serve, http1_lane: Lane, wait_until: WaitUntil) -> None:
    """One thread answers others while clients of endless responses read nothing."""
    begun = threading.Semaphore(0)

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        def endless() -> Iterator[bytes]:
            begun.release()
            while True:
                yield b"x" * 100_000

        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"now"] if environ["PATH_INFO"] == "/now" else endless()

    served = serve(application, http1_lane, threads=1)
    connections = [served.connect() for _ in range(20)]
    try:
        for each in connections:
            each.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        for _ in connections:
            assert begun.acquire(timeout=20)
        assert served.client().get("/now").text == "now"
    finally:
        for each in connections:
            each.close()
