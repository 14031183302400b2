"""Jobs for the threads that answer requests, and engines with threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from plughost._servers import Engine, EngineOptions, TLSFiles, open_engine
from plughost._servers.dispatcher import Dispatcher
from plughost._servers.responses import engine_error
from plughost._servers.work import Job

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import Until

    from plughost._api.host import Listener
    from plughost._servers.work import ThreadGroup

THREADS, SHARE, QUEUE = 8, 2, 3


class Plain:
    """A WSGI application that is nobody's in particular."""

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

    def client_of(self, environ: dict[str, Any]) -> str:
        """Return the address of the connection."""
        return str(environ["REMOTE_ADDR"])

    def refuse(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer 503."""
        status, headers, body = engine_error(503, environ.get("HTTP_X_REQUEST_ID", ""))
        start_response(status, headers)
        return [body]


def open_alone(application: WSGIApplication, listener: Listener, tls: TLSFiles | None = None) -> Engine:
    """Return an engine with a dispatcher of its own, which has threads only once there is a request."""
    return open_engine(Plain(application), listener, EngineOptions(), tls, Dispatcher(THREADS))


class Task(Job):
    """A job that calls a function."""

    def __init__(self, dispatcher: Dispatcher, run: Callable[[], object], plugin: str = "") -> None:
        """Begin with nothing done."""
        self.share = dispatcher.share_of(plugin)
        self._run = run
        self.refused = threading.Event()
        self.slow = threading.Event()

    def run(self) -> None:
        """Do what it was told."""
        self._run()

    def refuse(self) -> None:
        """Note that it was refused."""
        self.refused.set()

    def on_slow(self) -> None:
        """Note that it takes long."""
        self.slow.set()


class Receivers:
    """Threads that receive jobs from a channel: as granian's do, knowing nothing of each other, or one alone."""

    def __init__(self, dispatcher: Dispatcher, threads: int, *, alone: bool) -> None:
        """Start them."""
        self._alone = alone
        self.group: ThreadGroup = dispatcher.add_group(threads)
        self._dispatcher = dispatcher
        self._jobs: list[Job | None] = []
        self._there = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._receive, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def give(self, job: Job | None) -> None:
        """Have one of them receive a job."""
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
            if not self._dispatcher.run_in_pool(job, "POST", self.group):
                self._dispatcher.run_or_queue(job, self.group)

    def close(self) -> None:
        """End them."""
        self._dispatcher.remove_group(self.group)
        for _ in self._threads:
            self.give(None)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


def submit(dispatcher: Dispatcher, run: Callable[[], object], plugin: str = "") -> Task:
    """Have a function called by the dispatcher's own threads."""
    task = Task(dispatcher, run, plugin)
    dispatcher.submit(task)
    return task


def hold(dispatcher: Dispatcher, release: threading.Event, until: Until, plugin: str, jobs: int) -> None:
    """Have a plugin hold threads."""
    for _ in range(jobs):
        submit(dispatcher, lambda: release.wait(20), plugin)
    until(lambda: dispatcher.loads()[plugin].held == jobs)
