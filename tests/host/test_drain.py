"""The drain: what plugins are told of it, whom a reload waits for, and what it says of what it cut off."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.host.plugins import Plugin, Speaker, group_of, until

from plughost import Middleware, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

each_listener = pytest.mark.parametrize(
    ("scheme", "engine"), [("http", "waitress"), ("http", "granian"), ("https", "granian")]
)


class Ticks:
    """A plugin with an endless stream; one that listens ends it when it is told to."""

    def __init__(self, *, listens: bool = True) -> None:
        """Have nothing begun."""
        self.ended = threading.Event()
        self.told: list[str] = []
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
        self.told.append("draining")
        if self._listens:
            self.ended.set()

    @hookimpl
    def stopping(self, context: Any) -> None:
        """Take note."""
        self.told.append("stopping")


class Reader:
    """A client of the stream, in a thread of its own.

    Attributes:
        lines: What it has read.
        end: How the response ended: None while it goes on, `complete`, or the name of an error.
    """

    def __init__(self, host: RunningHost, scheme: str = "http") -> None:
        """Ask, and return when the first line is there."""
        self.lines: list[str] = []
        self.end: str | None = None
        self._thread = threading.Thread(target=self._read, args=(host.client(scheme=scheme),))
        self._thread.start()
        until(lambda: bool(self.lines))

    def _read(self, client: httpx.Client) -> None:
        try:
            with client, client.stream("GET", "/ticks") as response:
                self.lines.extend(response.iter_lines())
        except httpx.HTTPError as error:
            self.end = type(error).__name__
        else:
            self.end = "complete"

    def join(self) -> str | None:
        """Wait until the response has ended."""
        self._thread.join(60)
        return self.end


def hosting(installed: list[Any], *, engine: str = "waitress", grace_time: float = 300.0) -> Any:
    """Run a host with some plugins."""
    settings = {"grace_time": grace_time, "sites": {"main": {"http_engine": engine}}}
    return running_host(distributions=installed, settings=settings)


@each_listener
@pytest.mark.parametrize("word", ["changed", "removed"])
def test_a_plugin_ends_its_own_streams_at_a_reload(word: str, scheme: str, engine: str) -> None:
    """Told that the drain begins, a plugin that leaves or changes ends its endless stream, and nothing is cut off."""
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
        assert (ticks.told, other.told) == (["draining", "stopping"], [])


@each_listener
def test_plugins_end_their_own_streams_at_the_stop(scheme: str, engine: str) -> None:
    """All plugins are told that the drain begins before the host waits for what is in flight."""
    ticks = Ticks()
    with hosting([plugin_distribution("ticks", ticks)], engine=engine) as host:
        reader = Reader(host, scheme)
        assert host.host.stop()
        assert (reader.join(), reader.lines[-1]) == ("complete", "bye")
    assert ticks.told == ["draining", "stopping"]


@each_listener
def test_a_reload_says_what_it_cut_off_and_after_how_long(scheme: str, engine: str) -> None:
    """A stream that does not end is cut, visibly; the report has the seconds that were waited, and the setting."""
    installed = [plugin_distribution("ticks", Ticks(listens=False)), plugin_distribution("one", Speaker("one", "/one"))]
    with hosting(installed, engine=engine, grace_time=0.25) as host:
        reader = Reader(host, scheme)
        del installed[0]
        (told,) = host.host.reload().cut_off
        found = re.fullmatch(r"1 of ticks, after (\d+\.\d) s \(the setting grace_time is 0\.25 s\)", told)
        assert found, told
        assert float(found[1]) >= 0.2
        assert reader.join() == "RemoteProtocolError"


def test_a_reload_says_so_of_a_site_that_it_closes() -> None:
    """What is cut off since its site has no plugin any more is in the report, too."""
    installed = [plugin_distribution("ticks", Ticks(listens=False))]
    with hosting(installed, grace_time=0.25) as host:
        reader = Reader(host)
        del installed[0]
        (told,) = host.host.reload().cut_off
        assert re.fullmatch(r"requests on the site main, after \d+\.\d s \(the setting grace_time is 0\.25 s\)", told)
        assert reader.join() == "RemoteProtocolError"


def test_a_reload_does_not_wait_for_the_streams_of_plugins_that_it_reuses() -> None:
    """A stream of a plugin that nothing happened to goes on over reloads, until its own plugin leaves."""
    ticks = Ticks()
    installed = [plugin_distribution("ticks", ticks), plugin_distribution("one", Speaker("one", "/one"))]
    with hosting(installed) as host:
        reader = Reader(host)
        del installed[1]
        assert host.host.reload().removed == ("one",)
        read = len(reader.lines)
        until(lambda: len(reader.lines) > read)
        installed[0] = plugin_distribution("ticks", Speaker("new"), version="2.0")
        assert host.host.reload().cut_off == ()
        assert reader.join() == "complete"


class Around:
    """Middleware that does nothing."""

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Do nothing."""


def test_a_reload_waits_for_all_that_middleware_is_around() -> None:
    """Where a plugin leaves whose middleware is around other plugins' requests, those are waited for as well."""
    around = Plugin(register_middleware=lambda context: [Middleware(name="around", component=Around(), scope="host")])
    installed = [plugin_distribution("ticks", Ticks()), plugin_distribution("around", around)]
    with hosting(installed, grace_time=0.25) as host:
        reader = Reader(host)
        del installed[1]
        (told,) = host.host.reload().cut_off
        assert told.startswith("1 of ticks, after ")
        assert reader.join() == "RemoteProtocolError"


def test_a_failing_hook_keeps_nobody_from_being_told() -> None:
    """What `draining` raises is logged and nothing else: other plugins are told, and the stop goes on."""
    ticks = Ticks()

    def fail(context: Any) -> None:
        raise SystemExit(3)

    with hosting([plugin_distribution("bad", Plugin(draining=fail)), plugin_distribution("ticks", ticks)]) as host:
        assert host.host.stop()
    assert ticks.told == ["draining", "stopping"]
