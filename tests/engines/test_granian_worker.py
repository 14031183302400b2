"""Granian's private behaviour that we rely on: a test fails if a new version of granian changes it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.engines.conftest import tokio_workers
from tests.stacks import stack_size

from plughost._servers.base import EngineOptions
from plughost._servers.connections import backlog_size
from plughost._servers.granian_worker import GranianWorker

if TYPE_CHECKING:
    from tests.engines.conftest import WaitUntil

    from plughost._servers.granian_response import Watcher

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    """Return a message with a part of a response."""
    return {"type": "http.response.body", "body": data, "more_body": more}


@contextmanager
def working(
    schedule: Callable[[Watcher], None], place: Callable[[], object] = lambda: None
) -> Iterator[tuple[GranianWorker, int]]:
    """Run a worker, and yield it and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        worker = GranianWorker(listening, EngineOptions(), 4)
        worker.start(schedule, place)
        yield worker, listening.getsockname()[1]
        worker.stop()
        assert worker.ended.wait(20)


def ask(port: int, path: str = "/", content: bytes | None = None) -> tuple[int, bytes]:
    """Send a request, and return status and body of its response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET" if content is None else "POST", path, content)
        with connection.getresponse() as response:
            return response.status, response.read()


def test_a_request_is_answered_in_the_thread_that_received_it() -> None:
    """The scheduler gets scope and protocol, and `send` acts at once."""
    seen: list[Any] = []

    def schedule(watcher: Watcher) -> None:
        seen.append((watcher.scope["raw_path"], watcher.scope["http_version"], watcher.scope["client"][0]))
        watcher.proto.send(START)
        watcher.proto.send(body(b"done"))

    with working(schedule) as (_, port):
        assert ask(port, "/a%2Fb") == (200, b"done")
    assert seen == [(b"/a%2Fb", "1.1", "127.0.0.1")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux shows native threads")
def test_granians_first_thread_runs_tasks(wait_until: WaitUntil) -> None:
    """The first thread with the name of tokio's workers runs tasks, and waits in epoll while idle."""
    before = tokio_workers()
    with working(lambda watcher: watcher.done()) as (_, port):
        ask(port)
        worker = min(tokio_workers() - before, key=int)
        wait_until(lambda: "poll" in Path("/proc/self/task", worker, "wchan").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor only on Linux")
def test_granians_threads_inherit_the_processor() -> None:
    """The thread that is bound starts all others, and they inherit its binding."""
    before = tokio_workers()
    last = {max(os.sched_getaffinity(0))}
    with working(lambda watcher: watcher.done(), partial(os.sched_setaffinity, 0, last)):
        started = tokio_workers() - before
        assert started
        assert all(os.sched_getaffinity(int(thread)) == last for thread in started)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the size of a thread's stack")
def test_granians_threads_have_a_sufficient_stack() -> None:
    """With less than Python expects, recursive C code for deeply nested JSON crashes Python 3.13."""
    sizes: list[int] = []

    def schedule(watcher: Watcher) -> None:
        sizes.append(stack_size())
        watcher.done()

    with working(schedule) as (_, port), contextlib.suppress(http.client.HTTPException):
        ask(port)
    assert sizes[0] >= 8 * 1024 * 1024


def test_a_body_arrives_by_callbacks() -> None:
    """`receive` returns a future-like object; its callback is called when its result, the message, is there."""

    def schedule(watcher: Watcher) -> None:
        parts: list[bytes] = []

        def take(later: Any) -> None:
            message = later.result()
            parts.append(message["body"])
            if message["more_body"]:
                watcher.proto.receive().add_done_callback(take)
            else:
                watcher.proto.send(START)
                watcher.proto.send(body(b"%d" % len(b"".join(parts))))

        watcher.proto.receive().add_done_callback(take)

    with working(schedule) as (_, port):
        assert ask(port, content=b"x" * 300_000) == (200, b"300000")


def test_a_pending_receive_can_be_cancelled() -> None:
    """Its callback is called then, and its result raises."""
    ended: list[str] = []

    def schedule(watcher: Watcher) -> None:
        def take(later: Any) -> None:
            try:
                later.result()
            except asyncio.CancelledError:
                ended.append("cancelled")
            watcher.proto.send(START)
            watcher.proto.send(body(b"gave up"))

        later = watcher.proto.receive()
        later.add_done_callback(take)
        later.cancel()

    with working(schedule) as (_, port), socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.read() == b"gave up"
    assert ended == ["cancelled"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows native threads")
def test_a_cancelled_receive_makes_granian_poll(wait_until: WaitUntil) -> None:
    """It starts a thread to do so if none is free, even without a new request."""
    looked, release = threading.Event(), threading.Event()
    before: set[Path] = set()

    def threads() -> set[Path]:
        return {*Path("/proc/self/task").iterdir()}

    def schedule(watcher: Watcher) -> None:
        before.update(threads())
        watcher.proto.receive().cancel()
        looked.set()
        assert release.wait(20)
        watcher.proto.send(START)
        watcher.proto.send(body(b"done"))

    with working(schedule) as (_, port), ThreadPoolExecutor(1) as pool:
        response = pool.submit(ask, port)
        assert looked.wait(20)
        wait_until(lambda: threads() - before)  # threads of an earlier test may end meanwhile
        release.set()
        assert response.result() == (200, b"done")


def test_a_full_buffer_is_reported() -> None:
    """Once four parts wait for the client, `send` returns an object whose callback is called when there is room."""
    blocked, room = threading.Event(), threading.Event()

    def schedule(watcher: Watcher) -> None:
        def end(_: object) -> None:
            room.set()
            watcher.proto.send(body(b""))

        watcher.proto.send(START)
        for _ in range(20):  # parts larger than the system's buffers
            later: Any = watcher.proto.send(body(bytes(16_000_000), more=True))
            if hasattr(later, "add_done_callback"):
                later.add_done_callback(end)
                blocked.set()
                return

    with working(schedule) as (_, port), socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert blocked.wait(20)
        assert not room.is_set()
        while client.recv(1 << 20):
            pass
        assert room.is_set()


def test_a_disconnected_client_is_reported() -> None:
    """Once the request is complete, `receive` waits for the client's disconnect."""
    waits, left = threading.Event(), threading.Event()

    def schedule(watcher: Watcher) -> None:
        def notice(later: Any) -> None:
            if later.result()["type"] == "http.disconnect":
                left.set()
            else:
                watcher.proto.receive().add_done_callback(notice)
                waits.set()

        watcher.proto.receive().add_done_callback(notice)

    with working(schedule) as (_, port):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert waits.wait(20)
        assert left.wait(20)


def test_a_response_without_an_end_is_cut_off() -> None:
    """`done` resets an incomplete response, and answers 500 if nothing was sent."""

    def schedule(watcher: Watcher) -> None:
        if watcher.scope["raw_path"] == b"/half":
            watcher.proto.send(START)
            watcher.proto.send(body(b"half", more=True))
        watcher.done()

    with working(schedule) as (_, port):
        assert ask(port, "/nothing")[0] == 500
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            ask(port, "/half")


def test_closing_the_port_keeps_connections() -> None:
    """`close_port` takes the socket from granian without its connections."""

    def schedule(watcher: Watcher) -> None:
        watcher.proto.send(START)
        watcher.proto.send(body(b"still"))

    with working(schedule) as (worker, port), socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.read() == b"still"
        worker.close_port()
        with socket.socket() as late:
            assert late.connect_ex(("127.0.0.1", port)) != 0
        client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"


def test_a_client_that_connects_during_a_pause_is_answered_after_it() -> None:
    """`pause` leaves connections in the backlog, and granian accepts them after `resume`."""

    def schedule(watcher: Watcher) -> None:
        watcher.proto.send(START)
        watcher.proto.send(body(b"late"))

    with working(schedule) as (worker, port):
        assert ask(port) == (200, b"late")
        worker.pause()
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(12)
            client.settimeout(20)
            worker.resume()
            assert client.recv(12) == b"HTTP/1.1 200"
        assert ask(port, "/")[0] == 200


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a processor only on Linux")
def test_start_returns_once_connections_are_accepted() -> None:
    """This holds however late granian's thread runs: a `pause` before it listens would be permanent."""
    allowed = os.sched_getaffinity(0)
    here = partial(os.sched_setaffinity, 0, {max(allowed)})
    here()  # granian's thread has to wait for this one here
    try:
        for _ in range(200):
            with socket.create_server(("127.0.0.1", 0)) as listening:
                listening.setblocking(False)
                worker = GranianWorker(listening, EngineOptions(), 4)
                with socket.create_connection(listening.getsockname()):
                    worker.start(lambda watcher: watcher.done(), here)
                    worker.pause()
                    assert backlog_size(listening) == 0
                worker.stop()
                assert worker.ended.wait(20)
    finally:
        os.sched_setaffinity(0, allowed)
