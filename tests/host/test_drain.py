"""The drain: how plugins learn of it, what a reload waits for, and how it reports cut-off requests."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.host.plugins import Plugin, Speaker, group_of
from tests.waiting import wait_until

from plughost import Job, Middleware, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

    from plughost import JobRun

each_listener = pytest.mark.parametrize(
    ("scheme", "engine"), [("http", "waitress"), ("http", "granian"), ("https", "granian")]
)


class Ticks:
    """A plugin with an endless stream; with `listens`, it ends the stream when the drain begins."""

    def __init__(self, *, listens: bool = True) -> None:
        """Prepare the stream."""
        self.ended = threading.Event()
        self.calls: list[str] = []
        self._listens = listens

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send a line every so often."""
        resp.content_type = "text/plain"
        resp.stream = self._ticks()

    def _ticks(self) -> Iterator[bytes]:
        while not self.ended.wait(0.01):
            yield b"tick\n"
        yield b"bye\n"

    @hookimpl
    def register_routes(self, context: Any) -> list[Any]:
        """Mount the stream."""
        return [group_of(self, "/ticks")]

    @hookimpl
    def draining(self, context: Any) -> None:
        """End the stream."""
        self.calls.append("draining")
        if self._listens:
            self.ended.set()

    @hookimpl
    def stopping(self, context: Any) -> None:
        """Record the call."""
        self.calls.append("stopping")


class Reader:
    """A client that reads the stream in its own thread.

    Attributes:
        lines: What it has read.
        end: How the response ended: None while it goes on, `complete`, or the name of an error.
    """

    def __init__(self, host: RunningHost, scheme: str = "http", path: str = "/ticks") -> None:
        """Send the request, and return after the first line."""
        self._path = path
        self.lines: list[str] = []
        self.end: str | None = None
        self._thread = threading.Thread(target=self._read, args=(host.client(scheme=scheme),))
        self._thread.start()
        wait_until(lambda: bool(self.lines))

    def _read(self, client: httpx.Client) -> None:
        try:
            with client, client.stream("GET", self._path) as response:
                self.lines.extend(response.iter_lines())
        except httpx.HTTPError as error:
            self.end = type(error).__name__
        else:
            self.end = "complete"

    def join(self) -> str | None:
        """Wait until the response has ended."""
        self._thread.join(60)
        return self.end


def is_refused(address: tuple[str, int]) -> bool:
    """Return whether an address accepts no connection."""
    try:
        socket.create_connection(address, timeout=60).close()
    except ConnectionError:  # refused, or reset while the port closes
        return True
    return False


def hosting(installed: list[Any], *, engine: str = "waitress", grace_time: float = 300.0) -> Any:
    """Run a host with the given plugins."""
    settings = {"grace_time": grace_time, "sites": {"main": {"http_engine": engine}}}
    return running_host(distributions=installed, settings=settings)


@each_listener
@pytest.mark.parametrize("word", ["changed", "removed"])
def test_a_plugin_ends_its_own_streams_at_a_reload(word: str, scheme: str, engine: str) -> None:
    """A removed or changed plugin ends its endless stream when the drain begins, and nothing is cut off."""
    ticks, other = Ticks(), Ticks()
    installed = [plugin_distribution("ticks", ticks), plugin_distribution("other", Speaker("other", "/other"))]
    vars(other)["register_routes"] = hookimpl(lambda context: [group_of(other, "/still")])
    installed.append(plugin_distribution("still", other))
    with hosting(installed, engine=engine) as host:
        reader = Reader(host, scheme)
        installed[0:1] = [plugin_distribution("ticks", Ticks(), version="2.0")] if word == "changed" else []
        report = host.host.reload()
        assert (getattr(report, word), report.cut_off) == (("ticks",), ())
        assert (reader.join(), reader.lines[-1]) == ("complete", "bye")
        assert (ticks.calls, other.calls) == (["draining", "stopping"], [])


@each_listener
def test_plugins_end_their_own_streams_at_the_stop(scheme: str, engine: str) -> None:
    """`draining` is called for all plugins before the host waits for requests in flight."""
    ticks = Ticks()
    with hosting([plugin_distribution("ticks", ticks)], engine=engine) as host:
        reader = Reader(host, scheme)
        assert host.host.stop()
        assert (reader.join(), reader.lines[-1]) == ("complete", "bye")
    assert ticks.calls == ["draining", "stopping"]


@each_listener
def test_a_reload_reports_what_it_cut_off_and_when(scheme: str, engine: str) -> None:
    """The client sees that its stream was cut off; the report has the seconds waited, and the setting."""
    installed = [plugin_distribution("ticks", Ticks(listens=False)), plugin_distribution("one", Speaker("one", "/one"))]
    with hosting(installed, engine=engine, grace_time=0.25) as host:
        reader = Reader(host, scheme)
        del installed[0]
        (message,) = host.host.reload().cut_off
        found = re.fullmatch(r"1 of ticks, after (\d+\.\d) s \(the setting grace_time is 0\.25 s\)", message)
        assert found, message
        assert float(found[1]) >= 0.2
        assert reader.join() == "RemoteProtocolError"


class Variables:
    """A resource that looks at each variable of its environ, and stops at the first."""

    def __init__(self) -> None:
        """Prepare the stop."""
        self.begun, self.go_on = threading.Event(), threading.Event()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Respond after the last one."""
        for _ in req.env:
            self.begun.set()
            assert self.go_on.wait(60)


@each_listener
def test_a_request_may_iterate_over_its_environ_when_the_host_stops(scheme: str, engine: str) -> None:
    """It is answered, although the stop ends streams."""
    variables = Variables()
    installed = [plugin_distribution("variables", Plugin(register_routes=lambda context: [group_of(variables)]))]
    with ThreadPoolExecutor(2) as pool, hosting(installed, engine=engine) as host, host.client(scheme=scheme) as client:
        address = "127.0.0.1", client.base_url.port or 0
        response = pool.submit(client.get, "/say")
        assert variables.begun.wait(30)
        stop = pool.submit(host.host.stop)
        wait_until(lambda: is_refused(address))
        variables.go_on.set()
        assert (response.result(60).status_code, stop.result(60)) == (200, True)


@each_listener
def test_a_request_may_iterate_over_its_environ_when_its_plugin_is_removed(scheme: str, engine: str) -> None:
    """It is answered, although the reload ends streams, and then no longer waits."""
    variables = Variables()
    installed = [
        plugin_distribution("variables", Plugin(register_routes=lambda context: [group_of(variables)])),
        plugin_distribution("one", Speaker("one", "/one")),
    ]
    with (
        ThreadPoolExecutor(1) as pool,
        hosting(installed, engine=engine, grace_time=0.25) as host,
        host.client(scheme=scheme) as client,
    ):
        response = pool.submit(client.get, "/say")
        assert variables.begun.wait(30)
        del installed[0]
        assert host.host.reload().cut_off
        variables.go_on.set()
        assert response.result(60).status_code == 200


@each_listener
def test_a_stream_that_is_cut_off_before_it_begins_is_503(scheme: str, engine: str) -> None:
    """A stream that yields nothing but empty parts holds no thread of a host that has replaced its plugin."""
    polls, closed = threading.Event(), threading.Event()

    def poll() -> Iterator[bytes]:
        try:
            while True:
                polls.set()
                yield b""
        finally:
            closed.set()

    class Polls:
        def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
            resp.stream = poll()

    installed = [
        plugin_distribution("polls", Plugin(register_routes=lambda context: [group_of(Polls())])),
        plugin_distribution("one", Speaker("one", "/one")),
    ]
    with hosting(installed, engine=engine, grace_time=0.25) as host, host.client(scheme=scheme) as client:
        with ThreadPoolExecutor(1) as thread:
            response = thread.submit(client.get, "/say", timeout=60)
            assert polls.wait(30)
            del installed[0]
            assert host.host.reload().cut_off
            assert response.result(30).status_code == 503
        assert closed.wait(30)


def test_a_reload_reports_cut_off_requests_of_a_closed_site() -> None:
    """The report includes requests that were cut off because their site has no plugin any more."""
    installed = [plugin_distribution("ticks", Ticks(listens=False))]
    with hosting(installed, grace_time=0.25) as host:
        reader = Reader(host)
        del installed[0]
        (message,) = host.host.reload().cut_off
        assert re.fullmatch(
            r"requests on the site main, after \d+\.\d s \(the setting grace_time is 0\.25 s\)", message
        )
        assert reader.join() == "RemoteProtocolError"


def test_a_reload_does_not_wait_for_streams_of_reused_plugins() -> None:
    """A stream of an unchanged plugin survives reloads until its own plugin leaves."""
    ticks = Ticks()
    installed = [plugin_distribution("ticks", ticks), plugin_distribution("one", Speaker("one", "/one"))]
    with hosting(installed) as host:
        reader = Reader(host)
        del installed[1]
        assert host.host.reload().removed == ("one",)
        read = len(reader.lines)
        wait_until(lambda: len(reader.lines) > read)
        installed[0] = plugin_distribution("ticks", Speaker("new"), version="2.0")
        assert host.host.reload().cut_off == ()
        assert reader.join() == "complete"


def test_a_stop_reports_what_a_reload_waited() -> None:
    """What a reload waits for requests counts for the stop, which reports it along with its own wait."""
    leaving, staying = Ticks(listens=False), Ticks(listens=False)
    vars(staying)["register_routes"] = hookimpl(lambda context: [group_of(staying, "/staying")])
    installed = [plugin_distribution("leaving", leaving), plugin_distribution("staying", staying)]
    with hosting(installed, grace_time=3.0) as host:
        readers = Reader(host), Reader(host, path="/staying")
        del installed[0]
        reload = threading.Thread(target=host.host.reload)
        reload.start()
        wait_until(lambda: leaving.calls == ["draining"])
        assert not host.host.stop()
        assert host.host.drain_seconds > 2.5  # the requests alone have 2 s
        assert [each.join() for each in readers] == ["RemoteProtocolError"] * 2
        reload.join()


class Around:
    """Middleware that does nothing."""

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Do nothing."""


@pytest.mark.parametrize("scope", [{"scope": "host"}, {"scope": "site", "site": "main"}])
def test_a_reload_waits_for_requests_inside_removed_middleware(scope: dict[str, Any]) -> None:
    """If a removed plugin's middleware surrounds other plugins' requests, the reload waits for those as well."""
    around = Plugin(register_middleware=lambda context: [Middleware(name="around", component=Around(), **scope)])
    installed = [plugin_distribution("ticks", Ticks()), plugin_distribution("around", around)]
    with hosting(installed, grace_time=0.25) as host:
        reader = Reader(host)
        del installed[1]
        (message,) = host.host.reload().cut_off
        assert message.startswith("1 of ticks, after ")
        assert reader.join() == "RemoteProtocolError"


def test_a_failing_draining_hook_affects_no_other_plugin() -> None:
    """An exception of `draining` is only logged: the other plugins are notified, and the stop continues."""
    ticks = Ticks()

    def fail(context: Any) -> None:
        raise SystemExit(3)

    with hosting([plugin_distribution("bad", Plugin(draining=fail)), plugin_distribution("ticks", ticks)]) as host:
        assert host.host.stop()
    assert ticks.calls == ["draining", "stopping"]


@pytest.mark.parametrize("by", ["stop", "reload"])
def test_a_plugin_stops_after_its_jobs(by: str) -> None:
    """A job has until the end of `grace_time` to finish, even if no request is in flight."""
    begun, drained, calls = threading.Event(), threading.Event(), list[str]()

    def work(run: JobRun) -> None:
        begun.set()
        wait_until(lambda: drained.is_set() and (by == "reload" or not host.host.ports))
        calls.append("job")

    working = Plugin(
        register_jobs=lambda context: [Job(name="work", run=work, at_start=True)],
        draining=lambda context: drained.set(),
        stopping=lambda context: calls.append("stopping"),
    )
    installed = [plugin_distribution("working", working), plugin_distribution("one", Speaker("one"))]
    with hosting(installed) as host:
        assert begun.wait(30)
        if by == "reload":
            del installed[0]
            host.host.reload()
        else:
            host.host.stop()
        assert calls == ["job", "stopping"]


def test_a_reload_reports_a_removed_plugin_that_fails_to_stop() -> None:
    """What failed before was reported then."""

    def fail(context: Any) -> None:
        raise SystemExit(3)

    installed = [plugin_distribution("bad", Plugin(started=fail, stopping=fail))]
    with hosting(installed) as host:
        del installed[0]
        ((plugin, trouble),) = host.host.reload().trouble
        assert (plugin, trouble.partition(":")[0]) == ("bad (plughost-bad 1.0)", "stopping")
