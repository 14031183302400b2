"""Services of the host for its plugins: kept objects, commands, log subscriptions, switching, routes at the root."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.plugins import TIME_LIMIT
from tests.waiting import wait_until

from plughost import Middleware, Observer, Operation, PluginContext, Route, RouteGroup, hookimpl
from plughost._api.context import PluginContext as Context
from plughost._api.errors import CommandError
from plughost._api.events import Event, Events
from plughost._logging import make_logger
from plughost._runtime.control import Control
from plughost._runtime.lines import Lines
from plughost._settings.models import LogSettings
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

    from plughost._runtime.host import Host


class Hello:
    """Says hello."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.text = "hello"


class Greeting:
    """A plugin with one group, which the test chooses; each instance records the objects kept before it."""

    prefix = "/hello"
    paths: tuple[str, ...] = ("",)

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        instances: list[int] = context.keep("instances", list)
        instances.append(id(self))
        context.add_query("size", lambda: {"size": len(instances)})
        context.add_query("prefix", lambda: {"prefix": self.prefix})
        context.add_query("broken", lambda: {"broken": instances[99]})
        context.add_query("exit", sys.exit)
        context.add_query("guarded", lambda: {"guarded": context.authenticator is not None})
        routes = tuple(Route(path, Hello(), {"GET": Operation(summary="Greet", produces=())}) for path in self.paths)
        return [RouteGroup(prefix=self.prefix, routes=routes)]


class Guard:
    """Offers an authenticator, so that all plugins declare again."""

    @hookimpl
    def register_authenticator(self) -> object:
        """Let nobody in."""
        return lambda req: None


class Silent:
    """A later version, without routes and queries."""

    @hookimpl
    def register_observers(self) -> list[Observer]:
        """Observe nothing."""
        return []


def _plugin(prefix: str = "/hello", *paths: str) -> Greeting:
    plugin = Greeting()
    plugin.prefix, plugin.paths = prefix, paths or ("",)
    return plugin


def _state(host: Host) -> tuple[str, str]:
    plugin = next(each for each in host.view.plugins if each.name == "greeting")
    return plugin.state, plugin.reason or ""


def test_the_root_itself_can_be_a_route() -> None:
    """A group at / answers the root itself, and nothing below it."""
    with running_host(distributions=[plugin_distribution("greeting", _plugin("/"))]) as host, host.client() as client:
        assert client.get("/").text == "hello"
        assert client.get("/other").status_code == 404
        assert client.post("/").status_code == 405


def test_a_group_at_the_root_has_no_other_path() -> None:
    """A group at / that would cover a whole site is refused."""
    with running_host(distributions=[plugin_distribution("greeting", _plugin("/", "", "/x"))]) as host:
        state, reason = _state(host.host)
        assert (state, "or / for a route with an empty path" in reason) == ("failed", True)


def test_a_plugin_is_switched_off_and_on_while_the_host_runs() -> None:
    """Disabling writes the settings file and takes effect; enabling reverses it."""
    with running_host(distributions=[plugin_distribution("greeting", Greeting)]) as host:
        assert host.host.view.control.switch("greeting", enabled=False).disabled == ("greeting",)
        assert _disabled(host) == ["greeting"]
        assert _state(host.host)[0] == "disabled"
        assert host.host.view.control.switch("greeting", enabled=True).added == ("greeting",)
        assert _disabled(host) == []


def _disabled(host: RunningHost) -> list[str]:
    file = host.host.settings.file
    assert file is not None
    return re.findall(r'"(\w+)"', next(line for line in file.read_text().splitlines() if line.startswith("disabled")))


def test_dependents_of_a_disabled_plugin_are_blocked() -> None:
    """Unlike an edit by hand, the command is not refused because of them; its report names them."""
    needy = plugin_distribution("needy", _plugin("/needy"), requires=["plughost-greeting"])
    with running_host(distributions=[plugin_distribution("greeting", Greeting), needy]) as host:
        report = host.host.view.control.switch("greeting", enabled=False)
        assert (report.swapped, report.disabled, report.removed, report.failed) == (True, ("greeting",), (), ())
        assert [label for label, _ in report.blocked] == ["needy (plughost-needy 1.0)"]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nobody", {}, "No plugin named nobody is installed"),
        ("greeting", {"required": ["greeting"]}, "The setting required names greeting"),
    ],
)
def test_a_plugin_that_cannot_be_disabled_is_reported(name: str, settings: dict[str, Any], message: str) -> None:
    """An unknown or required plugin stays as it is, with the reason."""
    with running_host(settings=settings, distributions=[plugin_distribution("greeting", Greeting)]) as host:
        with pytest.raises(CommandError, match=message):
            host.host.view.control.switch(name, enabled=False)
        assert _state(host.host)[0] == "active"


def test_a_plugin_skipped_on_the_command_line_cannot_be_enabled() -> None:
    """The settings file can't override --without."""
    with (
        running_host(without=["greeting"], distributions=[plugin_distribution("greeting", Greeting)]) as host,
        pytest.raises(CommandError, match="skipped by --without"),
    ):
        host.host.view.control.switch("greeting", enabled=True)


def test_kept_objects_survive_the_plugins_instance() -> None:
    """After disabling and enabling, the new instance finds the objects of the first one."""
    with running_host(distributions=[plugin_distribution("greeting", Greeting)]) as host:
        host.host.view.control.switch("greeting", enabled=False)
        host.host.view.control.switch("greeting", enabled=True)
        assert host.host.view.answer_query("greeting", "size") == {"size": 2}


def test_commands_reach_the_plugin_in_the_running_host(tmp_path: Path) -> None:
    """A context on the same data folder gets the plugin's answer, or an error for an unknown command."""
    with running_host(data_dir=tmp_path, distributions=[plugin_distribution("greeting", Greeting)]) as host:
        control = Control(tmp_path, {"query": host.host.view.answer_query})
        control.start()
        try:
            context: Context[None] = Context(
                plugin="greeting", settings=None, dev=False, logger=host.host.logger, data_root=tmp_path,
                services=host.host.view,
            )  # fmt: skip
            assert context.query_host("size") == {"size": 1}
            assert context.query_host("age") == {"error": "no plugin greeting with the query age is active"}
            host.host.view.control.switch("greeting", enabled=False)
            assert context.query_host("size") == {"error": "no plugin greeting with the query size is active"}
        finally:
            control.stop()


def test_a_query_ends_with_the_version_that_added_it() -> None:
    """A version that no longer adds the query doesn't answer it, and a version that is refused answers none."""
    distributions = [plugin_distribution("greeting", Greeting)]
    with running_host(distributions=distributions) as host:
        distributions[:] = [plugin_distribution("greeting", _plugin("hello"), version="1.1")]
        assert not host.host.reload().swapped
        assert host.host.view.answer_query("greeting", "prefix") == {"prefix": "/hello"}
        distributions[:] = [plugin_distribution("greeting", Silent, version="1.2")]
        assert host.host.reload().swapped
        assert host.host.view.answer_query("greeting", "prefix").keys() == {"error"}


def test_a_refused_reload_leaves_the_queries_of_an_unchanged_plugin() -> None:
    """With another authenticator, an unchanged plugin declares again; if that is refused, it answers as before."""
    distributions = [plugin_distribution("greeting", Greeting), plugin_distribution("other", Silent)]
    with running_host(distributions=distributions) as host:
        distributions[1:] = [plugin_distribution("guard", Guard), plugin_distribution("other", object(), version="1.1")]
        assert not host.host.reload().swapped
        assert host.host.view.answer_query("greeting", "guarded") == {"guarded": False}


@pytest.mark.parametrize(("query", "error"), [("broken", IndexError), ("exit", SystemExit)])
def test_the_log_has_the_traceback_of_a_query_that_raises(query: str, error: type[BaseException]) -> None:
    """The command gets the error in a word; the line names plugin and query, so its author can mend it."""
    stream = io.StringIO()
    logger = make_logger(LogSettings(format="json"), stream)
    with running_host(distributions=[plugin_distribution("greeting", Greeting)], logger=logger) as host:
        with pytest.raises(error):
            host.host.view.answer_query("greeting", query)
        line = json.loads(stream.getvalue().splitlines()[-1])
    assert (line["event"], line["plugin"], line["query"]) == ("query failed", "greeting", query)
    assert error.__name__ in line["exception"]


@pytest.mark.parametrize("error", [KeyError, SystemExit])
def test_a_subscriber_that_raises_stops_nobody(error: type[BaseException]) -> None:
    """Whoever emits goes on, the other subscribers get the event, and the log names the function."""
    lines, stream, seen = Events(), io.StringIO(), list[Event]()
    logger = make_logger(LogSettings(format="json"), stream, lines)

    def stumble(event: Event) -> None:
        raise error(event.name)

    with running_host(distributions=[plugin_distribution("greeting", Greeting)], logger=logger) as host:
        lines.on_failure = host.host.events.on_failure
        lines.subscribe(stumble)
        host.host.events.subscribe(stumble)
        host.host.events.subscribe(seen.append, "reload")
        assert host.host.reload().swapped
    assert [event.name for event in seen] == ["reload"]
    assert f'"subscriber":"{__name__}.{stumble.__qualname__}"' in stream.getvalue()


def test_a_subscriber_to_the_log_that_hangs_delays_nobody() -> None:
    """Requests are answered, and the host reloads and stops, while it is busy with its first line."""
    going_on, finished = threading.Event(), threading.Event()

    def hang(event: Event) -> None:
        going_on.wait(30)
        finished.set()

    with running_host(distributions=[plugin_distribution("greeting", Greeting)]) as host, host.client() as client:
        host.host.view.lines.subscribe(hang)
        assert host.host.reload().ok
        assert client.get("/hello").text == "hello"
        host.host.stop()
        assert not finished.is_set()
        going_on.set()


def test_a_subscriber_to_reloads_that_hangs_holds_back_no_other_reload(hang: threading.Barrier) -> None:
    """After `hook_timeout` the reload is reported, the log shows where it hangs, and the next reload works."""
    stream, calls = io.StringIO(), list[Event]()
    logger = make_logger(LogSettings(format="json"), stream)

    def hang_once(event: Event) -> None:
        calls.append(event)
        if len(calls) == 1:
            hang.wait()

    installed = [plugin_distribution("greeting", Greeting)]
    with running_host(settings={"hook_timeout": TIME_LIMIT}, distributions=installed, logger=logger) as host:
        host.host.events.subscribe(hang_once, "reload")
        assert [host.host.reload().generation for _ in range(2)] == [2, 3]
    assert len(calls) == 2
    (failure,) = [line for line in map(json.loads, stream.getvalue().splitlines()) if "subscribers" in line["event"]]
    assert "in hang_once" in failure["exception"]


def test_a_subscriber_to_the_log_that_is_late_misses_lines() -> None:
    """While 10,000 lines wait for it, it gets no further ones, so that memory stays bounded."""
    lines, busy, going_on, seen = Lines(), threading.Event(), threading.Event(), list[int]()

    def note(event: Event) -> None:
        busy.set()
        going_on.wait(30)
        seen.append(event.fields["number"])

    end = lines.subscribe(note)
    lines.emit("line", number=-1)
    assert busy.wait(30)
    for number in range(10_001):
        lines.emit("line", number=number)
    going_on.set()
    wait_until(lambda: len(seen) > 10_000)
    lines.emit("line", number=-2)
    wait_until(lambda: seen[-1] == -2)
    assert seen[-2] == 9_999
    end()


def test_a_process_ends_before_a_subscriber_to_the_log_that_hangs() -> None:
    """Its thread keeps no interpreter from exiting."""
    code = (
        "import threading; from plughost._runtime.lines import Lines; lines, busy = Lines(), threading.Event();"
        "lines.subscribe(lambda _: busy.set() or threading.Event().wait()); lines.emit('line'); busy.wait()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_subscriber_to_the_log_may_log() -> None:
    """It gets no line that it causes, as one does that can't pass lines on and says so."""
    seen = list[str]()

    with running_host(distributions=[plugin_distribution("greeting", Greeting)]) as host:

        def complain(event: Event) -> None:
            seen.append(event.fields["event"])
            host.host.logger.warning("the line was not passed on")
            raise ConnectionError

        end = host.host.view.lines.subscribe(complain)
        assert host.host.reload().ok
        end()
    assert seen == ["audit", "reload"]


def test_a_subscriber_receives_the_lines_of_the_log() -> None:
    """It gets each line at or above `log.level` with all its fields; the line also goes to the log as before."""
    lines, seen, stream = Events(), list[Event](), io.StringIO()
    logger = make_logger(LogSettings(format="json", level="info"), stream, lines)
    logger.info("unseen")
    unsubscribe = lines.subscribe(seen.append)
    logger.bind(plugin="greeting").warning("trouble", name="x", fields=2)
    logger.debug("below the level")
    unsubscribe()
    logger.info("unseen")
    assert [(event.name, event.plugin) for event in seen] == [("line", "greeting")]
    expected = {"event": "trouble", "level": "warning", "plugin": "greeting", "name": "x", "fields": 2}
    assert dict(seen[0].fields) == expected
    assert stream.getvalue().count("\n") == 3


class Cache:
    """Middleware of a plugin that may answer a request itself, and adds its name to the response."""

    def __init__(self, name: str, *, completes: bool) -> None:
        """Store the name, and whether it answers."""
        self.name = name
        self.completes = completes

    def process_resource(self, req: Any, resp: Any, resource: Any, params: Any) -> None:
        """Answer, or let the next one do so."""
        resp.append_header("X-In", self.name)
        resp.complete = self.completes


def test_a_plugins_middleware_that_answers_is_the_last() -> None:
    """As in Falcon, neither its other `process_resource` nor the resource runs after `resp.complete`."""

    class Cached(Greeting):
        @hookimpl
        def register_middleware(self, context: PluginContext[Any]) -> list[Middleware]:
            """Return two, of which the outer one answers."""
            inner = Middleware(name="inner", component=Cache("inner", completes=False), after=("outer",))
            return [inner, Middleware(name="outer", component=Cache("outer", completes=True))]

    with running_host(distributions=[plugin_distribution("a", Cached())]) as host, host.client() as client:
        answer = client.get("/hello")
    assert (answer.content, answer.headers["X-In"]) == (b"", "outer")
