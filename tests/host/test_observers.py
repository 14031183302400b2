"""Observers: they are told of every answered request once, and can't get into the way of one."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

import falcon
import falcon.testing
import pytest
from structlog.testing import CapturingLogger
from tests.host.plugins import Plugin, Speaker, Watcher, reason, serving, until

from plughost import Observer, RequestKind, RequestRecord
from plughost._apps.site import Site
from plughost._runtime.request_log import RequestLog
from plughost.http._request import Request
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Observe = Any


class Fails:
    """Answers with an exception."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Raise."""
        raise RuntimeError


class OddStatus:
    """Answers with the same status in each way that Falcon takes, and with what is none."""

    STATUSES: ClassVar[dict[str, Any]] = {
        "number": 202,
        "text": "202 Accepted",
        "enum": HTTPStatus.ACCEPTED,
        "nonsense": "nonsense",
        "list": [202],
    }

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.status = self.STATUSES[req.get_param("status", required=True)]


def observing(observe: Observe) -> Plugin:
    """Return a plugin with one observer."""
    return Plugin(register_observers=lambda context: [Observer(name="watcher", observe=observe)])


def observers_threads() -> list[str]:
    """Return the names of the threads that tell observers."""
    return [each.name for each in threading.enumerate() if each.name == "observers"]


def test_an_observer_is_told_what_was_asked_and_answered() -> None:
    """Each request comes with its plugin, route, method, target, status, time, site, protocol and id, in order."""
    watcher = Watcher()
    installed = [
        plugin_distribution("watcher", observing(watcher)),
        plugin_distribution("speaker", Speaker("a")),
        plugin_distribution("fails", serving(Fails(), "/fails")),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        answer = client.get("/say?with=%20")
        client.get("/fails")
        client.get("/say/nothing/there")
        client.get("/nowhere")
        with host.client(scheme="https", http2=True) as secure:
            secure.head("/say")
        until(lambda: len(watcher.targets) == 5)
    told = [each for batch in watcher.batches for each in batch]
    assert [(each.plugin, each.route, each.method, each.target, each.code) for each in told] == [
        ("speaker", "/say", "GET", "/say?with=%20", 200),
        ("fails", "/fails", "GET", "/fails", 500),
        ("speaker", "/say/*", "GET", "/say/nothing/there", 404),
        ("", "", "GET", "/nowhere", 404),
        ("speaker", "/say", "HEAD", "/say", 200),
    ]
    assert [each.protocol for each in told] == [*["HTTP/1.1"] * 4, "HTTP/2"]
    assert {each.site for each in told} == {"main"}
    assert told[0].request_id == answer.headers["X-Request-ID"]
    assert all(each.seconds > 0 for each in told)
    assert sorted(told) == told


def test_a_status_that_cannot_be_sent_counts_as_what_is_sent_instead() -> None:
    """A status that is none is told as 500."""
    request = RequestRecord(0.0, 0.0, "GET", "/", "nonsense", None, "main", "HTTP/1.1", "x")
    assert request.code == 500
    assert request._replace(status=204).code == 204


def test_an_observer_of_times_is_told_how_long_requests_took_that_were_alike() -> None:
    """It gets the seconds of each request, by plugin, route, method and code, and needs no `observe`."""
    found: dict[RequestKind, list[float]] = {}

    def observe(times: Mapping[RequestKind, Sequence[float]]) -> None:
        for kind, seconds in times.items():
            found.setdefault(kind, []).extend(seconds)

    def times(context: object) -> list[Observer]:
        return [Observer(name="times", observe_times=observe)]

    installed = [
        plugin_distribution("times", Plugin(register_observers=times)),
        plugin_distribution("speaker", Speaker("a")),
        plugin_distribution("odd", serving(OddStatus(), "/odd")),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        for number in range(3):
            client.get(f"/say?{number}")
        client.request("BREW", "/say")
        client.get("/nowhere")
        for status in OddStatus.STATUSES:
            client.get(f"/odd?status={status}")
        host.host.view.catch_up()
    assert {kind: len(seconds) for kind, seconds in found.items()} == {
        RequestKind("speaker", "/say", "GET", 200): 3,
        RequestKind("speaker", "/say", "BREW", 405): 1,
        RequestKind("", "", "GET", 404): 1,
        RequestKind("odd", "/odd", "GET", 202): 3,
        RequestKind("odd", "/odd", "GET", 500): 2,
    }
    assert all(0 < each < 30 for seconds in found.values() for each in seconds)


def test_an_observer_may_ask_for_a_few_requests_at_a_time() -> None:
    """It is told of the first ones, while another is told of every one."""
    few, every = Watcher(), Watcher()
    limited = Plugin(register_observers=lambda context: [Observer(name="few", observe=few, at_most=2)])
    speaker = plugin_distribution("speaker", Speaker("a"))
    for beside in ([], [plugin_distribution("every", observing(every))]):
        installed = [plugin_distribution("few", limited), speaker, *beside]
        with running_host(distributions=installed) as host, host.client() as client:
            site = host.host.serving.sites["main"]
            for first in (0, 5):
                for number in range(first, first + 5):
                    environ = falcon.testing.create_environ("/say", query_string=str(number))
                    list(site(environ, lambda status, headers: None))
                host.host.view.catch_up()
            assert client.get("/say").status_code == 200
    assert all(len(batch) <= 2 for batch in few.batches)
    assert few.targets[:2] == ["/say?0", "/say?1"]
    assert [each for each in every.targets if "?" in each] == [f"/say?{number}" for number in range(10)]


def test_many_requests_are_counted_at_once_but_shown_once_a_second() -> None:
    """Where thousands wait, their times are told early; whoever asks for a few requests is told no more often."""
    few = Watcher()
    batches: list[Mapping[RequestKind, Sequence[float]]] = []
    observers = [Observer(name="few", observe=few, at_most=2), Observer(name="times", observe_times=batches.append)]
    installed = [
        plugin_distribution("both", Plugin(register_observers=lambda context: observers)),
        plugin_distribution("speaker", Speaker("a")),
    ]
    with running_host(distributions=installed) as host:
        site = host.host.serving.sites["main"]
        for _ in range(12_000):
            list(site(falcon.testing.create_environ("/say"), lambda status, headers: None))
        host.host.view.catch_up()
    assert len(batches) > len(few.batches)
    assert sum(len(seconds) for batch in batches for seconds in batch.values()) == 12_000


def test_catching_up_tells_at_once() -> None:
    """Whoever shows what observers made of requests need not wait for the second to end."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        for number in range(300):
            client.get(f"/say?{number}")
        host.host.view.catch_up()
        assert watcher.targets == [f"/say?{number}" for number in range(300)]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_an_observer_that_raises_is_logged_and_keeps_nobody_from_being_told(error: type[BaseException]) -> None:
    """The log names plugin and observer; the other observers and the requests go on."""
    watcher, log = Watcher(), CapturingLogger()

    def fail(requests: tuple[RequestRecord, ...]) -> None:
        raise error

    installed = [
        plugin_distribution("a-fails", observing(fail)),
        plugin_distribution("watcher", observing(watcher)),
        plugin_distribution("speaker", Speaker("a")),
    ]
    with running_host(distributions=installed, logger=log) as host, host.client() as client:  # type: ignore[arg-type]  # it takes what loggers take
        assert client.get("/say").status_code == 200
        until(lambda: watcher.targets == ["/say"])
        assert observers_threads()
    (told,) = [each for each in log.calls if "observer failed" in each.args]
    assert (told.kwargs["plugin"], told.kwargs["observer"]) == ("a-fails", "watcher")


def test_an_observer_that_hangs_holds_nobody_up() -> None:
    """Requests are answered while an observer is busy, and a scrape waits for it for a second at most."""
    busy, going_on = threading.Event(), threading.Event()

    def hang(requests: tuple[RequestRecord, ...]) -> None:
        busy.set()
        going_on.wait(30)

    installed = [plugin_distribution("hangs", observing(hang)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        client.get("/say")
        assert busy.wait(30)
        for _ in range(100):
            assert client.get("/say").status_code == 200
        host.host.view.catch_up()
        assert not going_on.is_set()
        going_on.set()


def test_a_reload_loses_and_doubles_nothing() -> None:
    """Each request is told once: to whom observes when it is told, or to whom did until the reload."""
    first, second = Watcher(), Watcher()
    installed = [plugin_distribution("a", observing(first)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        client.get("/say?1")
        installed[0] = plugin_distribution("b", observing(second))
        assert host.host.reload().ok
        client.get("/say?2")
        until(lambda: second.targets == ["/say?2"])
        assert first.targets == ["/say?1"]
        assert observers_threads() == ["observers"]
        del installed[0]
        assert host.host.reload().ok
        client.get("/say?3")
        until(lambda: not observers_threads())
    assert (first.targets, second.targets) == (["/say?1"], ["/say?2"])


def test_what_is_answered_before_observers_are_known_is_told_to_them() -> None:
    """Requests that come as soon as a port is open are told to whoever turns out to observe."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host:
        generation, site = host.host.generation, host.host.serving.sites["main"]
        assert generation is not None
        answered = RequestLog(host.host.logger, host.host.events)
        app = falcon.App(request_type=Request, middleware=[answered])
        list(Site(site.name, app)(falcon.testing.create_environ("/early"), lambda status, headers: None))
        answered.set_observers(generation.observers())
        answered.catch_up()
        answered.set_observers({})
        list(Site(site.name, app)(falcon.testing.create_environ("/unobserved"), lambda status, headers: None))
        answered.record_all()
        list(Site(site.name, app)(falcon.testing.create_environ("/again"), lambda status, headers: None))
        answered.set_observers(generation.observers())
        answered.set_observers({})
    assert watcher.targets == ["/early", "/again"]


def test_a_reload_that_is_refused_goes_on_telling() -> None:
    """Where the next generation can't serve, the observers of this one are told as before."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        failing = Plugin(register_routes=lambda context: 1 / 0)
        installed[1] = plugin_distribution("speaker", failing, version="2.0")
        assert not host.host.reload().ok
        client.get("/say?still")
        until(lambda: watcher.targets == ["/say?still"])


def test_what_was_answered_last_is_told_before_the_host_stops() -> None:
    """A stop tells the observers of the requests that it drained, and ends their thread."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        client.get("/say")
    assert watcher.targets == ["/say"]
    until(lambda: not observers_threads())


def test_without_observers_nothing_is_noted() -> None:
    """Where no plugin observes, requests are not noted and no thread runs."""
    with running_host(distributions=[plugin_distribution("speaker", Speaker("a"))]) as host, host.client() as client:
        client.get("/say")
        assert not observers_threads()
        assert host.host.generation is not None
        app = host.host.generation.sites["main"].app
        assert host.host.request_log.process_response not in app._middleware[2]


def test_observers_that_fall_behind_are_told_of_the_first_requests_and_the_log_says_so() -> None:
    """However many requests wait, those that are kept are bounded, and a warning names who is late."""
    log = CapturingLogger()
    busy, going_on = threading.Event(), threading.Event()
    watcher = Watcher()

    def slow(requests: tuple[RequestRecord, ...]) -> None:
        busy.set()
        going_on.wait(30)
        watcher(requests)

    installed = [plugin_distribution("slow", observing(slow)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed, logger=log) as host, host.client() as client:  # type: ignore[arg-type]  # see above
        client.get("/say")
        assert busy.wait(30)
        site = host.host.serving.sites["main"]
        for number in range(17_000):
            environ = falcon.testing.create_environ("/say", query_string=str(number))
            list(site(environ, lambda status, headers: None))
        going_on.set()
        until(lambda: len(watcher.batches) > 1)
        list(site(falcon.testing.create_environ("/say", query_string="later"), lambda status, headers: None))
        until(lambda: len(watcher.batches) > 2)
    assert watcher.targets[-1] == "/say?later"
    del watcher.batches[-1]
    assert len(watcher.targets) == 1 + 16_384
    assert watcher.targets[-1] == "/say?16383"
    (told,) = [each for each in log.calls if each.method_name == "warning"]
    assert told.kwargs["plugins"] == ["slow"]


def test_what_is_no_observer_fails_the_plugin() -> None:
    """A plugin whose hook returns something else, or an observer without a function, fails with the reason."""

    async def later(requests: tuple[RequestRecord, ...]) -> None:
        """Do nothing."""

    broken: dict[str, Callable[..., Any]] = {
        "text": lambda context: ["watcher"],
        "nothing": lambda context: [Observer(name="watcher")],
        "later": lambda context: [Observer(name="watcher", observe=later)],  # type: ignore[arg-type]  # likewise
        "nameless": lambda context: [Observer(name="a b", observe=print)],
        "number": lambda context: [Observer(name="watcher", observe_times=3)],  # type: ignore[arg-type]  # that is the point
        "none": lambda context: [Observer(name="watcher", observe=print, at_most=0)],
    }
    installed = [plugin_distribution(name, Plugin(register_observers=hook)) for name, hook in broken.items()]
    with running_host(distributions=[*installed, plugin_distribution("speaker", Speaker("a"))]) as host:
        assert "Return a list of Observer" in reason(host, "text")
        assert "observer 'watcher': it has neither observe nor observe_times" in reason(host, "nothing")
        assert "observer 'watcher': observe_times is no function" in reason(host, "number")
        assert "observer 'watcher': at_most is no number above 0" in reason(host, "none")
        assert "observer 'watcher': observe is async" in reason(host, "later")
        assert "observer 'a b'" in reason(host, "nameless")
