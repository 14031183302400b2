"""Reload: plugins are added, changed and removed while the host runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from tests.host.plugins import Plugin, Says, Speaker, group_of, serving
from tests.waiting import wait_until

from plughost import hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon


def test_an_unchanged_plugin_keeps_its_memory_while_another_is_added() -> None:
    """An unchanged plugin is the same object after a reload, and the new one serves."""
    installed = [plugin_distribution("one", Speaker("one", "/one"))]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/one").json()["count"] == 1
        assert client.get("/two").status_code == 404
        installed.append(plugin_distribution("two", Speaker("two", "/two")))
        report = host.host.reload()
        assert (report.added, report.reused, report.ok) == (("two",), ("one",), True)
        assert set(report.seconds) == {"two", "total"}
        assert client.get("/one").json()["count"] == 2
        assert client.get("/two").json()["word"] == "two"


def test_a_removed_plugin_is_gone_after_its_stopping_hook() -> None:
    """After a reload its paths are a clean 404, and its `stopping` was called once."""
    gone = Speaker("two", "/two")
    installed = [plugin_distribution("one", Speaker("one", "/one")), plugin_distribution("two", gone)]
    with running_host(distributions=installed) as host, host.client() as client:
        del installed[1]
        assert host.host.reload().removed == ("two",)
        assert client.get("/two").status_code == 404
        assert gone.calls == ["started", "draining", "stopping"]


def test_a_changed_plugin_answers_as_its_new_version() -> None:
    """After a reload, requests on the same connection get the new version's answers."""
    installed = [plugin_distribution("one", Speaker("old"), version="1.0")]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/say").json()["word"] == "old"
        installed[0] = plugin_distribution("one", Speaker("new"), version="2.0")
        assert host.host.reload().changed == ("one",)
        assert client.get("/say").json() == {"word": "new", "count": 1}


def test_an_upgrade_that_fails_changes_nothing() -> None:
    """If a serving plugin's next version can't be imported, the old version continues, with its memory."""
    installed = [plugin_distribution("one", Speaker("old"), version="1.0")]
    with running_host(distributions=installed) as host, host.client() as client:
        client.get("/say")
        installed[0] = plugin_distribution("one", ImportError("no module named nonsense"), version="2.0")
        report = host.host.reload()
        assert not report.swapped
        assert "one (plughost-one 2.0)" in report.problems[0]
        assert "nonsense" in report.failed[0][1]
        assert client.get("/say").json() == {"word": "old", "count": 2}
        installed[0] = plugin_distribution("one", Speaker("new"), version="3.0")
        assert host.host.reload().ok
        assert client.get("/say").json()["word"] == "new"


def test_a_new_plugin_that_fails_affects_no_other() -> None:
    """It is reported as failed, and a good one of the same reload serves."""
    installed = [plugin_distribution("one", Speaker("one", "/one"))]
    with running_host(distributions=installed) as host, host.client() as client:
        installed += [plugin_distribution("bad", SystemExit(3)), plugin_distribution("good", Speaker("good", "/good"))]
        report = host.host.reload()
        assert report.swapped
        assert not report.ok
        assert "sys.exit" in report.failed[0][1]
        assert client.get("/good").status_code == 200


def test_an_unchanged_failed_plugin_is_tried_again() -> None:
    """What it lacked may exist now."""
    groups: list[Any] = [7, [group_of(Says("late"))]]
    installed = [plugin_distribution("late", Plugin(register_routes=lambda context: groups.pop(0)))]
    with running_host(distributions=installed) as host:
        assert host.host.view.plugins[0].state == "failed"
        assert host.host.reload().ok
        with host.client() as client:
            assert client.get("/say").json()["word"] == "late"


def test_a_site_opens_with_its_first_plugin_and_closes_with_its_last() -> None:
    """The listeners of a site open and close with the plugins mounted on it, as often as these come and go."""
    installed = [plugin_distribution("one", Speaker("one", "/one"))]
    with running_host(distributions=installed) as host:
        assert {site for site, _ in host.host.ports} == {"main"}
        for _ in range(2):
            installed.append(plugin_distribution("two", Speaker("two", "/two", site="library")))
            host.host.reload()
            assert {site for site, _ in host.host.ports} == {"main", "library"}
            with host.client("library", "https", http2=True) as client:
                assert client.get("/two").json()["word"] == "two"
            del installed[1]
            host.host.reload()
            assert {site for site, _ in host.host.ports} == {"main"}


def test_a_reused_plugin_keeps_its_facts() -> None:
    """After reloads, an unchanged plugin shows its earlier load times, problem and hooks."""

    def fail(context: Any) -> None:
        raise RuntimeError("no lamp")

    plugin = Plugin(register_routes=lambda context: [group_of(Says("one"))], started=fail)
    with running_host(distributions=[plugin_distribution("one", plugin)]) as host:
        (before,) = host.host.view.plugins
        assert before.seconds.keys() >= {"import", "register_routes", "started"}
        assert "no lamp" in before.trouble[0]
        for _ in range(2):
            assert host.host.reload().reused == ("one",)
            assert host.host.view.plugins == (before,)


def test_load_times_are_parts_of_the_start() -> None:
    """Importing a plugin and calling its hooks takes no longer than the start of its host, nor than a reload."""
    begun = perf_counter()
    with running_host(distributions=[plugin_distribution("one", Speaker("one"))]) as host:
        started = perf_counter() - begun
        (one,) = host.host.view.plugins
        assert 0 < sum(one.seconds.values()) < started
        assert 0 < host.host.reload().seconds["total"] < perf_counter() - begun


def test_a_reused_plugin_is_shown_as_installed_now() -> None:
    """Present metadata counts, so it is blocked with a plugin that it now requires."""
    installed = [plugin_distribution("one", Speaker("one", "/one")), plugin_distribution("two", Speaker("two", "/two"))]
    with running_host(distributions=installed) as host:
        installed[0] = plugin_distribution("one", Speaker("one", "/one"), requires=["plughost-two"])
        assert sorted(host.host.reload().reused) == ["one", "two"]
        assert [each.requires for each in host.host.view.plugins if each.name == "one"] == [("two",)]


def test_a_changed_plugin_shows_new_facts() -> None:
    """When its settings change, a plugin is called again, and shows new load times and only present problems."""
    reasons = ["no lamp", ""]

    def start(context: Any) -> None:
        if reason := reasons.pop(0):
            raise RuntimeError(reason)

    plugin = limited()
    vars(plugin)["started"] = hookimpl(start)
    with running_host(distributions=[plugin_distribution("limited", plugin)]) as host:
        (before,) = host.host.view.plugins
        file = settings_file(host)
        file.write_text(f"{file.read_text()}\n[plugins.limited]\nlimit = 2\n")
        assert host.host.reload().changed == ("limited",)
        (after,) = host.host.view.plugins
        assert (len(before.trouble), after.trouble) == (1, ())
        assert after.seconds["register_settings"] != before.seconds["register_settings"]
        assert after.seconds.keys() == before.seconds.keys()


def test_a_plugin_has_the_same_state_everywhere() -> None:
    """Each plugin is in one list of a reload's report, under the state that the host shows for it."""
    installed = [
        plugin_distribution("base", Speaker("base", "/base")),
        plugin_distribution("gone", Speaker("gone", "/gone")),
        plugin_distribution("off", Speaker("off", "/off")),
        plugin_distribution("top", Speaker("top", "/top"), requires=["plughost-base"]),
    ]
    with running_host(distributions=installed) as host:
        installed[0] = plugin_distribution("base", ImportError("no lamp"), version="2.0")
        del installed[1]
        installed.append(plugin_distribution("fresh", Speaker("fresh", "/fresh")))
        settings_file(host).write_text(f"disabled = ['off']\n{settings_file(host).read_text()}")
        report = host.host.reload(accept=["base", "top"]).as_plain()
        words = ("added", "changed", "disabled", "removed", "reused", "failed", "blocked")
        listed = {
            word: [each if isinstance(each, str) else each[0].split()[0] for each in report[word]] for word in words
        }
        assert listed == {
            "added": ["fresh"],
            "changed": [],
            "disabled": ["off"],
            "removed": ["gone"],
            "reused": [],
            "failed": ["base"],
            "blocked": ["top"],
        }
        states = {each.name: each.state for each in host.host.view.plugins}
        assert states == {"base": "failed", "fresh": "active", "off": "disabled", "top": "blocked"}


class Slow(Says):
    """Answers after its release."""

    def __init__(self, word: str) -> None:
        """Store the word."""
        super().__init__(word)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Wait, then answer."""
        self.begun.set()
        self.go_on.wait(30)
        super().on_get(req, resp)


def in_background(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Call a function in a thread; its result is in the list once the thread has ended."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    return thread, results


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_slow_request_is_answered_by_the_code_that_it_reached(scheme: str) -> None:
    """The old code answers a request in flight and the new code later ones; `stopping` is called after that request."""
    calls: list[str] = []
    slow = Slow("old")
    old = serving(slow)
    vars(old)["stopping"] = hookimpl(lambda context: calls.append(f"stopping after {slow.count}"))
    installed = [plugin_distribution("one", old)]
    with running_host(distributions=installed) as host, host.client(scheme=scheme) as client:
        asking, responses = in_background(lambda: client.get("/say").json())
        assert slow.begun.wait(30)
        installed[0] = plugin_distribution("one", Speaker("new"), version="2.0")
        reloading, reports = in_background(host.host.reload)
        wait_until(lambda: host.host.generation.number == 2)
        with host.client(scheme=scheme) as other:
            assert other.get("/say").json()["word"] == "new"
        assert calls == []
        slow.go_on.set()
        for thread in (asking, reloading):
            thread.join(30)
        assert responses == [{"word": "old", "count": 1}]
        assert reports[0].changed == ("one",)
        assert calls == ["stopping after 1"]


def test_concurrent_reloads_run_one_after_another() -> None:
    """Each of several simultaneous reloads makes its own generation."""
    with running_host(distributions=[plugin_distribution("one", Speaker("one"))]) as host:
        running = [in_background(host.host.reload) for _ in range(4)]
        for thread, _ in running:
            thread.join(60)
        assert sorted(reports[0].generation for _, reports in running) == [2, 3, 4, 5]


def test_a_stopped_host_reloads_no_more() -> None:
    """A reload after the stop changes nothing and says so; a second stop changes nothing either."""
    speaker = Speaker("one")
    with running_host(distributions=[plugin_distribution("one", speaker)]) as host:
        host.host.stop()
        report = host.host.reload()
        assert (report.swapped, report.problems) == (False, ("the host is stopped, not serving",))
        assert host.host.stop()
    assert speaker.calls == ["started", "draining", "stopping"]


def settings_file(host: RunningHost) -> Path:
    """Return the settings file of a running host."""
    file = host.host.settings.file
    assert file is not None
    return file


def test_invalid_settings_change_nothing() -> None:
    """A reload with an unusable settings file says why, and the running generation continues."""
    with running_host(distributions=[plugin_distribution("one", Speaker("one"))]) as host, host.client() as client:
        file = settings_file(host)
        good = file.read_text()
        for bad, message in ((f"adress = 1\n{good}", "did you mean address?"), ("x =", "not valid TOML")):
            file.write_text(bad)
            report = host.host.reload()
            assert (report.swapped, message in report.problems[0]) == (False, True)
        file.unlink()
        assert "there is no such file" in host.host.reload().problems[0]
        file.write_text(good)
        assert host.host.reload().ok
        assert client.get("/say").json()["count"] == 1


def test_settings_read_at_start_ask_for_a_restart() -> None:
    """The report names a changed setting that is read at start only, and the rest takes effect."""
    with running_host(distributions=[plugin_distribution("one", Speaker("one"))]) as host:
        file = settings_file(host)
        file.write_text(f"address = '127.0.0.2'\ndisabled = ['one']\n{file.read_text()}")
        report = host.host.reload()
        assert (report.ok, report.disabled, report.removed) == (False, ("one",), ())
        assert report.restart_needed == ("the setting address changed, and is read at start only",)


class Limits(BaseModel):
    """Settings of a plugin."""

    limit: int = 1


def limited() -> Plugin:
    """Return a plugin that answers with its limit."""
    return Plugin(
        register_settings=lambda *_: Limits,
        register_routes=lambda context: [group_of(Says(str(context.settings.limit)))],
    )


def test_changed_settings_of_a_plugin_take_effect() -> None:
    """A plugin with a changed table is called again, others keep their memory; an invalid table changes nothing."""
    installed = [plugin_distribution("limited", limited()), plugin_distribution("other", Speaker("other", "/other"))]
    with running_host(distributions=installed) as host, host.client() as client:
        client.get("/other")
        file = settings_file(host)
        text = file.read_text()
        file.write_text(f"{text}\n[plugins.limited]\nlimit = 2\n")
        report = host.host.reload()
        assert (report.changed, report.reused) == (("limited",), ("other",))
        assert client.get("/say").json()["word"] == "2"
        assert client.get("/other").json()["count"] == 2
        file.write_text(f"{text}\n[plugins.limited]\nlimit = 'many'\n")
        assert not host.host.reload().swapped
        assert client.get("/say").json()["word"] == "2"


def test_adding_or_removing_an_authenticator_affects_reused_plugins() -> None:
    """Hooks of reused plugins are called again when the authenticator changes."""
    knows = Plugin(register_routes=lambda context: [group_of(Says("yes" if context.authenticator else "no"))])
    offers = Plugin(register_authenticator=lambda context: lambda request: None)
    installed = [plugin_distribution("knows", knows)]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/say").json()["word"] == "no"
        installed.append(plugin_distribution("offers", offers))
        assert host.host.reload().changed == ("knows",)
        assert client.get("/say").json()["word"] == "yes"
        assert host.host.reload().reused == ("knows", "offers")
        del installed[1]
        assert host.host.reload().ok
        assert client.get("/say").json()["word"] == "no"


def test_reused_plugins_lose_a_failed_authenticator() -> None:
    """If its plugin fails with a conflict in a reload, it authenticates nobody, even for reused plugins."""
    knows = Plugin(register_routes=lambda context: [group_of(Says("yes" if context.authenticator else "no"))])
    offers = Plugin(
        register_authenticator=lambda context: lambda request: None,
        register_routes=lambda context: [group_of(Says("taken"))],
    )
    installed = [plugin_distribution("knows", knows)]
    with running_host(distributions=installed) as host, host.client() as client:
        installed.append(plugin_distribution("offers", offers))
        report = host.host.reload()
        assert (report.changed, report.swapped) == (("knows",), True)
        assert client.get("/say").json()["word"] == "no"


def test_disabling_a_required_plugin_is_refused() -> None:
    """Its dependents would be blocked, so the old generation continues and the report names each."""
    installed = [
        plugin_distribution("base", Speaker("base", "/base")),
        plugin_distribution("more", Speaker("more", "/more"), requires=["plughost-base"]),
        plugin_distribution("top", Speaker("top", "/top"), requires=["plughost-base"]),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        file = settings_file(host)
        file.write_text(f"disabled = ['base']\n{file.read_text()}")
        report = host.host.reload()
        assert not report.swapped
        lost = "more (plughost-more 1.0) would be blocked; top (plughost-top 1.0) would be blocked"
        assert report.problems == (lost,)
        assert client.get("/base").status_code == client.get("/top").status_code == 200


def test_a_stop_does_not_wait_for_a_reload_that_hangs() -> None:
    """If a plugin hangs in a reload, the host still stops at once, and serves nothing new."""
    entered, release = threading.Event(), threading.Event()

    def hang(context: Any) -> list[Any]:
        entered.set()
        release.wait(30)
        return []

    installed = [plugin_distribution("one", Speaker("one", "/one"))]
    with running_host(distributions=installed) as host:
        installed.append(plugin_distribution("slow", Plugin(register_routes=hang)))
        reports: list[Any] = []
        reloading = threading.Thread(target=lambda: reports.append(host.host.reload()))
        reloading.start()
        assert entered.wait(10)
        assert host.host.stop()
        reloading.join()
        release.set()
    assert (reports[0].swapped, reports[0].problems) == (False, ("the host is stopping",))
    assert host.host.generation.number == 1
