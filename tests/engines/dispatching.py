"""Jobs for the threads that answer requests, and engines with threads of their own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from plughost._servers import Engine, EngineOptions, TLSFiles, open_engine
from plughost._servers.connections import open_socket
from plughost._servers.dispatcher import Dispatcher
from plughost._servers.responses import engine_error
from plughost._servers.threads import ThreadGroup
from plughost._servers.work import Job
from plughost.http._errors import PROBLEM_DETAILS, ErrorFormat

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import WaitUntil

    from plughost._api.host import Listener

THREADS, SHARE, QUEUE = 8, 2, 3


class PlainApplication:
    """A WSGI application that belongs to no plugin."""

    timed = False

    def __init__(self, application: WSGIApplication) -> None:
        """Wrap it."""
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        return self._application(environ, start_response)

    def plugin_of(self, environ: dict[str, Any]) -> str:
        """Return no name."""
        return ""

    def errors_of(self, environ: Mapping[str, Any]) -> ErrorFormat:
        """Return problem details."""
        return PROBLEM_DETAILS

    def client_of(self, environ: dict[str, Any]) -> str:
        """Return the peer address of the connection."""
        return str(environ["REMOTE_ADDR"])

    def refuse(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer 503."""
        status, headers, body = engine_error(503, environ.get("HTTP_X_REQUEST_ID", ""))
        start_response(status, headers)
        return [body]


def open_with_own_dispatcher(
    application: WSGIApplication,
    listener: Listener,
    tls: TLSFiles | None = None,
    listening: socket.socket | None = None,
) -> Engine:
    """Return an engine with its own dispatcher, which starts threads only for requests."""
    return open_engine(
        PlainApplication(application),
        listener,
        listening or open_socket(listener),
        EngineOptions(tls=tls if listener.scheme == "https" else None),
        Dispatcher(THREADS),
    )


class Task(Job):
    """A job that calls a function."""

    def __init__(self, dispatcher: Dispatcher, run: Callable[[], object], plugin: str = "") -> None:
        """Store the function, and reset the events."""
        self.share = dispatcher.share_of(plugin)
        self._run = run
        self.refused = threading.Event()
        self.slow = threading.Event()

    def run(self) -> None:
        """Call the function."""
        self._run()

    def refuse(self) -> None:
        """Record the refusal."""
        self.refused.set()

    def on_slow(self) -> None:
        """Record that the job is slow."""
        self.slow.set()


class Receivers:
    """Threads that receive jobs from a channel: all independently, as granian's do, or one at a time."""

    def __init__(self, dispatcher: Dispatcher, threads: int, *, alone: bool) -> None:
        """Start the threads."""
        self._alone = alone
        self.group = ThreadGroup(threads - 1)
        self._dispatcher = dispatcher
        self._jobs: list[Job | None] = []
        self._there = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._receive, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def send(self, job: Job | None) -> None:
        """Put a job into the channel."""
        self._jobs.append(job)
        self._there.release()

    def _receive(self) -> None:
        while True:
            if self._alone and self._dispatcher.park_if_spare(self.group):
                continue
            self._there.acquire()
            job = self._jobs.pop(0)
            if job is None:
                return
            if not self._dispatcher.pool.run(job, "POST", self.group):
                self._dispatcher.run_or_queue(job, self.group)

    def close(self) -> None:
        """End the threads."""
        self._dispatcher.threads.close_group(self.group)
        for _ in self._threads:
            self.send(None)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


def submit(dispatcher: Dispatcher, run: Callable[[], object], plugin: str = "") -> Task:
    """Have the dispatcher's own threads call a function."""
    task = Task(dispatcher, run, plugin)
    dispatcher.submit(task)
    return task


def hold(dispatcher: Dispatcher, release: threading.Event, wait_until: WaitUntil, plugin: str, jobs: int) -> None:
    """Let slow jobs of a plugin hold threads."""
    for _ in range(jobs):
        submit(dispatcher, lambda: release.wait(20), plugin)
    wait_until(lambda: dispatcher.loads()[plugin].held == jobs)
