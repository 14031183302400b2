"""Observers receive every answered request once, and can't delay or break one."""

from __future__ import annotations

import threading
from http import HTTPStatus
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, ClassVar

import falcon
import falcon.testing
import pytest
from structlog.testing import CapturingLogger
from tests.host.plugins import TIME_LIMIT, Plugin, Speaker, Watcher, reason, serving
from tests.waiting import wait_until

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
    """Sends the same status in each form that Falcon accepts, and invalid ones."""

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
    """Return the names of the threads that call observers."""
    return [each.name for each in threading.enumerate() if each.name == "observers"]


def test_an_observer_receives_requests_and_their_answers() -> None:
    """Each record has plugin, route, method, target, status, time, site, protocol and id, in the order of requests."""
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
        wait_until(lambda: len(watcher.targets) == 5)
    requests = [each for batch in watcher.batches for each in batch]
    assert [(each.plugin, each.route, each.method, each.target, each.code) for each in requests] == [
        ("speaker", "/say", "GET", "/say?with=%20", 200),
        ("fails", "/fails", "GET", "/fails", 500),
        ("speaker", "/say/*", "GET", "/say/nothing/there", 404),
        ("", "", "GET", "/nowhere", 404),
        ("speaker", "/say", "HEAD", "/say", 200),
    ]
    assert [each.protocol for each in requests] == [*["HTTP/1.1"] * 4, "HTTP/2"]
    assert {each.site for each in requests} == {"main"}
    assert requests[0].request_id == answer.headers["X-Request-ID"]
    assert all(each.seconds > 0 for each in requests)
    assert sorted(requests) == requests


def test_an_invalid_status_counts_as_the_status_sent_instead() -> None:
    """A record with an invalid status has the code 500."""
    request = RequestRecord(0.0, 0.0, "GET", "/", "nonsense", "", "", "main", "HTTP/1.1", "x")
    assert request.code == 500
    assert request._replace(status=204).code == 204


def test_an_observer_of_times_receives_durations_by_kind_of_request() -> None:
    """It receives the seconds of each request by plugin, route, method and code, and needs no `observe`."""
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


def test_an_observer_may_limit_the_requests_it_receives() -> None:
    """It receives the first ones of each batch, while another observer receives all."""
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


def test_many_requests_are_counted_early_but_shown_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """When thousands wait, times are passed on early, then the thread sleeps; `at_most` makes no more calls."""
    monkeypatch.setattr("plughost._runtime.request_log._NOTIFY_INTERVAL", 3600.0)  # that second doesn't end here
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
        wait_until(lambda: batches)
        assert not few.batches
        host.host.view.catch_up()
        wait_until(lambda: not host.host.request_log._wake.is_set())
    assert len(few.batches) == 1
    assert sum(len(seconds) for batch in batches for seconds in batch.values()) == 12_000


def test_catching_up_calls_observers_at_once() -> None:
    """A page with observers' results needn't wait until the second ends."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        for number in range(300):
            client.get(f"/say?{number}")
        host.host.view.catch_up()
        assert watcher.targets == [f"/say?{number}" for number in range(300)]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_an_observer_that_raises_is_logged_and_affects_no_other(error: type[BaseException]) -> None:
    """The log names plugin and observer; other observers and the requests continue."""
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
        wait_until(lambda: watcher.targets == ["/say"])
        assert observers_threads()
    (entry,) = [each for each in log.calls if "observer failed" in each.args]
    assert (entry.kwargs["plugin"], entry.kwargs["observer"]) == ("a-fails", "watcher")


def test_an_observer_that_hangs_delays_no_request() -> None:
    """Requests are answered while an observer is busy, and a scrape waits for it for at most a second."""
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


def test_an_observer_that_hangs_keeps_no_requests_from_others(hang: threading.Barrier) -> None:
    """After `hook_timeout` others get their requests, the log shows where it hangs, and it goes on once it returns."""
    calls, watcher, log = list[str](), Watcher(), CapturingLogger()

    def hang_once(requests: tuple[RequestRecord, ...]) -> None:
        calls.append(requests[-1].target)
        if len(calls) == 1:
            hang.wait()

    installed = [
        plugin_distribution("a-hangs", observing(hang_once)),
        plugin_distribution("watcher", observing(watcher)),
        plugin_distribution("speaker", Speaker("a")),
    ]
    settings = {"hook_timeout": TIME_LIMIT}
    with running_host(settings=settings, distributions=installed, logger=log) as host, host.client() as client:  # type: ignore[arg-type]  # see above
        for target in ("/say?1", "/say?2", "/say?3"):
            client.get(target)
            wait_until(lambda target=target: target in watcher.targets)  # type: ignore[misc]  # mypy knows no defaults
        assert calls == ["/say?1"]
        hang.wait()
        client.get("/say?4")
        wait_until(lambda: "/say?4" in watcher.targets)
        wait_until(lambda: client.get("/say?5") and "/say?5" in calls)
    (entry,) = [each for each in log.calls if any("observer hangs" in text for text in each.args)]
    assert (entry.kwargs["plugin"], entry.kwargs["observer"]) == ("a-hangs", "watcher")
    assert hang_once.__code__ in {frame.f_code for frame, _ in walk_tb(entry.kwargs["exc_info"].__traceback__)}


def test_who_catches_up_runs_no_observer() -> None:
    """A scrape, a reload and a stop wait for an observer, and never are in its code, where it could hang."""
    threads = set[str]()

    def note(requests: tuple[RequestRecord, ...]) -> None:
        threads.add(threading.current_thread().name)

    installed = [plugin_distribution("notes", observing(note)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        for catch_up in (host.host.view.catch_up, host.host.reload, host.host.stop):
            client.get("/say")
            threads.clear()
            catch_up()
            assert threads <= {"observer"}
    assert threads == {"observer"}


def test_a_reload_neither_loses_nor_repeats_requests() -> None:
    """Each request goes once to the present observers, or to those of before the reload."""
    first, second = Watcher(), Watcher()
    installed = [plugin_distribution("a", observing(first)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        client.get("/say?1")
        installed[0] = plugin_distribution("b", observing(second))
        assert host.host.reload().ok
        client.get("/say?2")
        wait_until(lambda: second.targets == ["/say?2"])
        assert first.targets == ["/say?1"]
        assert observers_threads() == ["observers"]
        del installed[0]
        assert host.host.reload().ok
        client.get("/say?3")
        wait_until(lambda: not observers_threads())
    assert (first.targets, second.targets) == (["/say?1"], ["/say?2"])


def test_requests_before_observers_are_known_are_passed_on() -> None:
    """Requests that arrive as soon as a port is open go to the observers that are found later."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host:
        generation, site = host.host.generation, host.host.serving.sites["main"]
        assert generation is not None
        answered = RequestLog(host.host.logger, host.host.events)
        app = falcon.App(request_type=Request, middleware=[answered])
        list(Site(site.name, app)(falcon.testing.create_environ("/early"), lambda status, headers: None))
        answered.start()
        answered.set_observers(generation.observers())
        answered.set_observers({})
        list(Site(site.name, app)(falcon.testing.create_environ("/unobserved"), lambda status, headers: None))
        answered.record_all()
        list(Site(site.name, app)(falcon.testing.create_environ("/again"), lambda status, headers: None))
        answered.start()
        answered.set_observers(generation.observers())
        answered.set_observers({})
    assert watcher.targets == ["/early", "/again"]


def test_after_a_refused_reload_observers_continue() -> None:
    """If the next generation can't serve, the present observers receive requests as before."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        failing = Plugin(register_routes=lambda context: 1 / 0)
        installed[1] = plugin_distribution("speaker", failing, version="2.0")
        assert not host.host.reload().ok
        client.get("/say?still")
        wait_until(lambda: watcher.targets == ["/say?still"])


def test_the_last_requests_reach_observers_before_the_host_stops() -> None:
    """A stop passes on the requests that it drained, and ends the observers' thread."""
    watcher = Watcher()
    installed = [plugin_distribution("watcher", observing(watcher)), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        client.get("/say")
    assert watcher.targets == ["/say"]
    wait_until(lambda: not observers_threads())


def test_without_observers_nothing_is_recorded() -> None:
    """If no plugin observes, requests are not recorded and no thread runs."""
    with running_host(distributions=[plugin_distribution("speaker", Speaker("a"))]) as host, host.client() as client:
        client.get("/say")
        assert not observers_threads()
        assert host.host.generation is not None
        app = host.host.generation.sites["main"].app
        assert host.host.request_log.process_response not in app._middleware[2]


def test_slow_observers_receive_the_first_requests_and_a_warning_is_logged() -> None:
    """The number of waiting requests is bounded, and the warning names the late observer's plugin."""
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
        wait_until(lambda: len(watcher.batches) > 1)
        list(site(falcon.testing.create_environ("/say", query_string="later"), lambda status, headers: None))
        wait_until(lambda: len(watcher.batches) > 2)
    assert watcher.targets[-1] == "/say?later"
    del watcher.batches[-1]
    assert len(watcher.targets) == 1 + 16_384
    assert watcher.targets[-1] == "/say?16383"
    (warning,) = [each for each in log.calls if each.method_name == "warning"]
    assert warning.kwargs["plugins"] == ["slow"]


def test_an_invalid_observer_fails_its_plugin() -> None:
    """The reason says that the hook returned something else, or an observer without a function."""

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
        assert "observer 'watcher': observe_times must be Callable" in reason(host, "number")
        assert "observer 'watcher': at_most is no number above 0" in reason(host, "none")
        assert "observer 'watcher': observe is async" in reason(host, "later")
        assert "observer 'a b'" in reason(host, "nameless")
