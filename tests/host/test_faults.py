"""Single faults inside a host: none stops another plugin, and none leaves the host between two states."""

from __future__ import annotations

import gc
import io
import threading
import weakref
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.plugins import TIME_LIMIT, Plugin, Speaker, Watcher, group_of, reason
from tests.limits import no_descriptors
from tests.waiting import wait_until

from plughost import Job, Observer, Store
from plughost._api.bounded import Interrupted
from plughost._api.events import Events
from plughost._logging import make_logger
from plughost._runtime.generation import GenerationRefused
from plughost._runtime.host import Host
from plughost._runtime.lifecycle import Phase
from plughost._runtime.request_log import RequestLog
from plughost._runtime.view import status_of
from plughost._settings.models import LogSettings
from plughost._settings.sources import read_settings
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from plughost import JobRun, PluginContext, RouteGroup
    from plughost._api.events import Event


@pytest.fixture
def refused_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set for the names of threads that the system refuses to start."""
    start, refused = threading.Thread.start, set[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name in refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refused


def test_an_object_that_takes_long_to_make_delays_no_other_plugin(hang: threading.Barrier) -> None:
    """`context.keep` waits only for the same object of the same plugin."""
    hanging = Plugin(register_routes=lambda context: context.keep("slow", hang.wait))
    good = Plugin(register_routes=lambda context: [group_of(context.keep("quick", Says))])
    installed = [plugin_distribution("bad", hanging), plugin_distribution("good", good)]
    with running_host(distributions=installed, settings={"hook_timeout": TIME_LIMIT}) as host:
        assert reason(host, "bad").startswith("failed")
        assert reason(host, "good").startswith("active")


def test_a_stop_waits_for_no_further_hook_of_a_start(tmp_path: Path) -> None:
    """However quick the hooks are: all plugins together may have hundreds."""
    called = []

    def plugin(name: str) -> Plugin:
        def register_routes(context: PluginContext[Any]) -> list[RouteGroup]:
            called.append(name)
            host.lifecycle.stop_requests.add()
            return []

        return Plugin(register_routes=register_routes)

    installed = [plugin_distribution(name, plugin(name)) for name in ("a", "b", "c")]
    file = tmp_path / "plughost.toml"
    file.touch()
    host = Host(read_settings(file, environment={}), distributions=lambda: installed)
    with pytest.raises(Interrupted):
        host.start()
    assert called[0] == "a"
    assert "c" not in called


def test_an_object_may_be_made_of_another_one() -> None:
    """`context.keep` may be called inside the function of another `keep`."""
    kept = Plugin(
        register_routes=lambda context: [group_of(context.keep("outer", lambda: context.keep("inner", Says)))]
    )
    with running_host(distributions=[plugin_distribution("a", kept)]) as host, host.client() as client:
        assert client.get("/say").status_code == 200


class Says:
    """Answers nothing."""

    def on_get(self, req: Any, resp: Any) -> None:
        """Answer."""


@pytest.mark.parametrize(
    ("thread", "hooks"),
    [
        ("observers", {"register_observers": lambda context: [Observer(name="o", observe=Watcher())]}),
        ("plughost-jobs", {"register_jobs": lambda context: [Job(name="j", run=lambda run: None, every=60)]}),
    ],
)
def test_a_reload_that_needs_a_thread_too_many_is_refused(
    refused_threads: set[str], thread: str, hooks: dict[str, Callable[..., Any]]
) -> None:
    """The old generation serves on, is reported as such, and stops as usual; a later reload is done."""
    installed = [plugin_distribution("a", Speaker("old"), version="1")]
    with running_host(distributions=installed) as host, host.client() as client:
        new = Plugin(register_routes=lambda context: [group_of(Says())], **hooks)
        installed[0] = plugin_distribution("a", new, version="2")
        refused_threads.add(thread)
        report = host.host.reload()
        assert (report.swapped, host.host.generation.number) == (False, 1)
        assert client.get("/say").json()["word"] == "old"
        refused_threads.clear()
        assert host.host.reload().swapped
        assert client.get("/say").content == b""


def test_observers_lose_no_request_for_lack_of_a_thread(refused_threads: set[str]) -> None:
    """While the system allows no further thread, the one that notifies them calls them itself."""
    watcher = Watcher()
    observing = Plugin(register_observers=lambda context: [Observer(name="o", observe=watcher)])
    installed = [plugin_distribution("observing", observing), plugin_distribution("speaker", Speaker("a"))]
    with running_host(distributions=installed) as host, host.client() as client:
        refused_threads.add("observer")
        client.get("/say")
        host.host.view.catch_up()
        assert watcher.targets == ["/say"]


def test_an_observer_that_hangs_is_kept_until_it_returns() -> None:
    """After a reload without it, another one at its former place in memory would get no requests."""
    going_on, stream = threading.Event(), io.StringIO()

    def hang(_: object) -> None:
        going_on.wait(60)

    log = RequestLog(make_logger(LogSettings(format="json"), stream), Events())
    log.start()
    log.set_observers({"a": (Observer(name="hangs", observe_times=hang),)}, 0.1)
    log._times += (0.1, "GET", "200 OK", None)
    log.catch_up()
    wait_until(lambda: "observer hangs" in stream.getvalue())
    log.set_observers({})
    gc.collect()
    assert "hangs" in {each.name for each in gc.get_objects() if type(each) is Observer}
    going_on.set()


def refuse_all(thread: threading.Thread) -> None:
    """Start no thread, as a system that allows no further one."""
    raise RuntimeError("can't start new thread")


def test_a_start_without_threads_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason says what to raise, and blames no plugin."""
    file = tmp_path / "plughost.toml"
    file.touch()
    installed = [plugin_distribution("a", Speaker("hello"))]
    host = Host(read_settings(file, environment={}), distributions=lambda: installed)
    monkeypatch.setattr(threading.Thread, "start", refuse_all)
    with pytest.raises(GenerationRefused, match="TasksMax"):
        host.start()


@pytest.mark.parametrize("lacking", ["threads", "descriptors"])
def test_a_reload_is_refused_while_the_system_gives_too_little(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    """It says what to raise, once, blames no plugin, and the running generation serves on."""
    installed = [plugin_distribution("a", Speaker("old"), version="1"), plugin_distribution("b", Speaker("b", "/b"))]
    with running_host(distributions=installed) as host, host.client() as client:
        installed[0] = plugin_distribution("a", Speaker("new"), version="2")
        with monkeypatch.context() as patch, no_descriptors() if lacking == "descriptors" else nullcontext():
            if lacking == "threads":
                patch.setattr(threading.Thread, "start", refuse_all)
            report = host.host.reload()
        (problem,) = report.problems
        assert ("TasksMax" if lacking == "threads" else "LimitNOFILE") in problem
        assert (report.swapped, report.failed, host.host.generation.number) == (False, (), 1)
        assert client.get("/say").json()["word"] == "old"
        assert host.host.reload().changed == ("a",)


def test_a_reload_that_fails_is_an_error_in_the_log() -> None:
    """Others are not, so that an alert for errors in the log concerns real ones."""
    installed = [plugin_distribution("one", Speaker("old"), version="1")]
    lines: list[Event] = []
    with running_host(distributions=installed) as host:
        end = host.host.view.lines.subscribe(lines.append)
        assert host.host.reload().ok
        installed[0] = plugin_distribution("one", ImportError("broken on purpose"), version="2")
        assert not host.host.reload().ok
        end()
    assert [each.fields["level"] for each in lines if each.fields["event"] == "reload"] == ["info", "error"]


def test_each_failure_is_logged_once(tmp_path: Path) -> None:
    """One before the migrations is not logged again when another plugin's store fails."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_fail.sql").write_text("NONSENSE;")
    store = Store(name="kept", migrations=tmp_path, tables=())
    installed = [plugin_distribution("one", Speaker("one"))]
    lines: list[Event] = []
    with running_host(distributions=installed) as host:
        end = host.host.view.lines.subscribe(lines.append)
        installed.append(plugin_distribution("bad", ImportError("broken on purpose")))
        installed.append(plugin_distribution("failing", Plugin(register_stores=lambda context: [store])))
        assert len(host.host.reload().failed) == 2
        end()
    failures = [each.fields["plugin"] for each in lines if each.fields["event"] == "plugin does not serve"]
    assert failures == ["bad (plughost-bad 1.0)", "failing (plughost-failing 1.0)"]


def test_what_a_reload_replaces_is_freed() -> None:
    """Reloads don't use ever more memory, although a host that has started hides its objects from the collector."""
    made: list[weakref.ref[Says]] = []

    def routes(context: PluginContext[Any]) -> list[RouteGroup]:
        resource = Says()
        made.append(weakref.ref(resource))
        return [group_of(resource)]

    installed = [plugin_distribution("one", Plugin(register_routes=routes), version="1")]
    with running_host(distributions=installed) as host:
        gc.freeze()
        try:
            installed[0] = plugin_distribution("one", Plugin(register_routes=routes), version="2")
            assert host.host.reload().changed == ("one",)
            assert [each() is None for each in made] == [True, False]
            assert gc.get_freeze_count()
        finally:
            gc.unfreeze()


def test_a_host_stops_without_a_thread_for_each_listener(refused_threads: set[str]) -> None:
    """It answers what is left on one listener after the other."""
    with running_host(distributions=[plugin_distribution("a", Speaker("hello"))]) as host:
        refused_threads.add("drain")
        assert host.host.stop()
        assert host.host.ports == {}


def test_requests_are_logged_without_a_thread_for_the_log(refused_threads: set[str]) -> None:
    """A request whose line no thread can write writes it itself."""
    log = io.StringIO()
    logger = make_logger(LogSettings(level="info"), log)
    refused_threads.add("plughost-access-log")
    installed = [plugin_distribution("a", Speaker("hello"))]
    settings = {"log": {"access": True}}
    with running_host(distributions=installed, settings=settings, logger=logger) as host, host.client() as client:
        assert client.get("/say").status_code == 200
        wait_until(lambda: log.getvalue().count('"request"') == 1)
        refused_threads.clear()
        assert client.get("/say").status_code == 200
        wait_until(lambda: log.getvalue().count('"request"') == 2)


def test_a_job_cut_off_with_its_plugin_is_forgotten_when_it_ends() -> None:
    """Its failure is nobody's health afterwards."""
    begun, go = threading.Event(), threading.Event()

    def work(run: JobRun) -> None:
        begun.set()
        go.wait(60)
        raise RuntimeError("its store is closed")

    leaving = plugin_distribution("b", Plugin(register_jobs=lambda context: [Job(name="j", run=work, at_start=True)]))
    installed = [plugin_distribution("a", Speaker("hello")), leaving]
    with running_host(distributions=installed, settings={"grace_time": 1}) as host:
        assert begun.wait(30)
        installed.remove(leaving)
        assert host.host.reload(accept=["b"]).cut_off
        go.set()
        wait_until(lambda: not host.host.view.jobs)


def test_a_phase_is_never_followed_by_an_earlier_one() -> None:
    """A host that is stopped while it starts is not ready."""
    with running_host(distributions=[plugin_distribution("a", Speaker("hello"))]) as host:
        host.host.lifecycle.enter(Phase.DRAINING)
        host.host.lifecycle.enter(Phase.SERVING)
        assert host.host.lifecycle.unready == "it is draining"


def test_status_names_the_version_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host that another version was installed beside runs the old one until its restart."""
    with running_host(distributions=[plugin_distribution("a", Speaker("hello"))]) as host:
        version = status_of(host.host)["version"]
        newer = tmp_path / "plughost-99.dist-info"
        newer.mkdir()
        (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: plughost\nVersion: 99\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert status_of(host.host)["version"] == version


def test_uptime_stays_true_when_the_clock_is_set_back() -> None:
    """A machine that starts with a wrong clock corrects it while the host runs."""
    with running_host(distributions=[plugin_distribution("a", Speaker("hello"))]) as host:
        host.host.started_at = datetime(2099, 1, 1, tzinfo=UTC)
        assert 0 <= status_of(host.host)["uptime_seconds"] < TIME_LIMIT
