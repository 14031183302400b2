"""The pages show a host's state."""

from __future__ import annotations

import html
import re
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any

import pytest

import plughost
from plughost import Check, Health, Operation, PluginContext, Route, RouteGroup, hookimpl
from plughost_dev_console.facts import facts
from plughost_dev_console.tracebacks import own_frames
from plughost_dev_console.vitals import Vitals

from .conftest import NASTY, Console, Item, Shop, Start

PAGES = (
    "",
    "/plugins",
    "/routes",
    "/requests",
    "/log",
    "/threads",
    "/stores",
    "/settings",
    "/jobs",
    "/health",
    "/hooks",
    "/load",
)


class Failing:
    """A plugin that fails."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Fail."""
        raise RuntimeError(NASTY)


class UnhealthyPlugin:
    """A plugin with a failing check."""

    @hookimpl
    def register_checks(self, context: PluginContext[Any]) -> list[Check]:
        """Return a check that is up, and three that break the rules."""

        def fail() -> Health:
            raise RuntimeError(NASTY)

        well = Check(name="well", check=lambda: Health(up=True, data={"left": 7}))
        odd = Check(name="odd", check=lambda: True)  # type: ignore[arg-type, return-value] # which authors forget
        return [well, Check(name="ill", check=fail), odd, Check(name="gone", check=sys.exit)]


def _text(page: str) -> str:
    """Return a page's visible text."""
    main = page.partition("<main")[2].partition(">")[2].partition("</main>")[0]
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", main).split()))


@pytest.mark.parametrize("path", PAGES)
def test_every_page_works_without_other_plugins(start: Start, path: str) -> None:
    """A host with only the console has content on each page."""
    with start() as console:
        answer = console.get(path)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert len(_text(answer.text)) > 60
        assert answer.text.count('aria-current="page"') == 1


def test_two_hundred_plugins_are_shown(start: Start) -> None:
    """Each is on the page of plugins and on the overview, which have a filter."""

    class Many:
        def __init__(self, number: int) -> None:
            self._number = number

        @hookimpl
        def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
            """Mount one route."""
            return [RouteGroup(prefix=f"/many/{self._number}", routes=(Route("", Item(), _GET),))]

    with start(**{f"many_{number}": Many(number) for number in range(200)}) as console:
        for path in PAGES:
            page = console.get(path).text
            assert page.count("/q/dev/plugins/many-199") >= (path in ("", "/plugins", "/routes", "/hooks", "/load"))
        assert "data-filter" in console.get("/plugins").text
        assert "This host serves 201 plugins" in _text(console.get().text)


_GET = {"GET": Operation(summary="Get")}


def test_the_routes_show_how_to_try_them(console: Console) -> None:
    """A path without fields is a link, and every operation has a form and a command that can be pasted."""
    page = console.get("/routes").text
    assert "/q/dev/try?site=main&amp;method=GET&amp;path=%2Fitems%2F%7Bname%7D" in page
    assert f'href="{console.origin}/items"' in page
    assert f"curl -g '{console.origin}/items/{{name}}'" in html.unescape(page)


def test_a_plugins_texts_are_escaped(start: Start) -> None:
    """Markup in summaries and reasons is plain text on every page."""
    with start(shop=Shop, failing=Failing, ill=UnhealthyPlugin) as console:
        console.client.get(f"/items/{NASTY}?{NASTY}")
        console.client.get("/items/broken")
        shown = [console.get(path).text for path in (*PAGES, "/plugins/failing", "/plugins/shop", "/pages/shop/broken")]
        assert sum(html.escape(NASTY) in page for page in shown) >= 6
        assert [page for page in shown if NASTY in page] == []


def test_a_traceback_begins_at_the_plugin() -> None:
    """Earlier frames of the host are left out, later ones stay; without frames of a plugin it stays complete."""
    host = Path(plughost.__file__).parent / "_plugins" / "registration.py"
    head, end = "Traceback (most recent call last):", "KeyError: 'coffee'"
    hosts = [f'  File "{host}", line 7, in call', "    hook()", "    ^^^^^^"]
    own = ['  File "/srv/plughost-shop/src/shop.py", line 3, in routes', "    return PRICES[thing]"]
    assert own_frames("\n".join([head, *hosts, *hosts, *own, *hosts, end])) == "\n".join([head, *own, *hosts, end])
    assert own_frames("\n".join([head, *own, end])) == ""
    assert own_frames("\n".join([head, *hosts, end])) == ""
    cause = [head, *hosts, *own, end, "", "During handling of the above exception, another exception occurred:", ""]
    assert own_frames("\n".join([*cause, head, *hosts, *own, end])).count(str(host)) == 0


def test_a_failed_plugin_is_shown_with_its_reason(start: Start) -> None:
    """The overview, the list and its own page show the reason, and the log has a line from the start."""
    with start(failing=Failing) as console:
        for path in ("", "/plugins", "/plugins/failing"):
            assert "register_routes: RuntimeError" in _text(console.get(path).text)
        assert console.lines(after="0&q=does+not+serve")
        assert "plugin does not serve" in _text(console.get("/log").text)


def test_a_refused_reload_is_reported_on_the_plugins_pages(start: Start) -> None:
    """The plugin's older version serves; the overview, the list and its page say why."""
    fails: list[str] = []

    class Shaky:
        @hookimpl
        def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
            """Mount a route, or fail."""
            if fails:
                raise RuntimeError(fails[0])
            return [RouteGroup(prefix="/shaky", routes=(Route("", Item(), _GET),))]

    with start(shaky=Shaky) as console:
        fails.append("no such price")
        file = console.host.host.settings.file
        assert file is not None
        file.write_text(f'{file.read_text()}\n[plugins.shaky]\nsite = "library"\n')
        assert not console.host.host.reload().swapped
        assert console.client.get("/shaky").status_code == 200
        for path in ("", "/plugins", "/plugins/shaky", "/load"):
            text = _text(console.get(path).text)
            assert "refused" in text, path
            assert "RuntimeError" in text, path
            assert "no such price" in text, path


def test_a_plugins_page_is_shown_in_the_frame(console: Console) -> None:
    """Its HTML is inserted unchanged, and the navigation has a link to it."""
    page = console.get("/pages/shop/shelf").text
    assert "<h2>What is on it</h2>" in page
    assert 'href="/q/dev/pages/shop/shelf" aria-current="page"' in page


def test_a_failing_page_shows_its_error(console: Console) -> None:
    """The console still works."""
    answer = console.get("/pages/shop/broken")
    assert answer.status_code == 200
    assert "The plugin failed to render this page RuntimeError" in _text(answer.text)


@pytest.mark.parametrize(
    "path", ["/plugins/nobody", "/pages/shop/nothing", "/stores/a/b", "/assets/..%2Fplugin.py", "/jobs/x", "/x"]
)
def test_an_unknown_name_is_a_404_page(console: Console, path: str) -> None:
    """It has the console's layout."""
    answer = console.get(path)
    assert answer.status_code == 404
    assert "To the console" in answer.text


def test_settings_show_their_source_and_no_secret(start: Start) -> None:
    """A value from the file has the file's name, and a password is masked."""
    settings = {"grace_time": 7, "stores": {"urls": {"unused": "postgresql://me:hunter2@db.example/x"}}}
    with start(_settings=settings) as console:
        page = console.get("/settings").text
        assert re.search(r"grace_time Seconds [a-z ]+ 7.0 seconds 30.0 plughost.toml", _text(page))
        assert "hunter2" not in page


def test_health_shows_the_result_of_each_check(start: Start) -> None:
    """A check that raises, exits or returns no health is down, and the other results are shown all the same."""
    with start(ill=UnhealthyPlugin) as console:
        text = _text(console.get("/health").text)
        overview = _text(console.get().text)
    assert "Down: gone, ill, odd Check" in text
    assert "Health: 3 of 4 down See why: gone, ill, odd" in overview
    assert "gone down ill ready error: SystemExit" in text
    assert "odd down ill ready error: it returned a bool, and no Health" in text
    assert "well up ill ready left: 7" in text
    assert f"ill down ill ready error: RuntimeError: {NASTY}" in text


def test_a_check_that_hangs_is_run_once(start: Start) -> None:
    """Each look would leave one more thread behind; once it has returned, it is run again."""
    go_on = threading.Event()

    class Hanging:
        @hookimpl
        def register_checks(self, context: PluginContext[Any]) -> list[Check]:
            """Return a check that waits."""
            return [Check(name="slow", check=lambda: Health(up=go_on.wait()))]

    with start(hanging=Hanging) as console:
        try:
            assert "slow down hanging ready error: TookTooLong" in _text(console.get("/health").text)
            assert "slow down hanging ready error: its last run has not re" in _text(console.get("/health").text)
            (thread,) = (each for each in threading.enumerate() if each.name == "console:slow")
        finally:
            go_on.set()
        thread.join()
        assert "slow up hanging ready" in _text(console.get("/health").text)


def test_a_newcomer_sees_how_to_write_a_plugin(start: Start) -> None:
    """The second command installs the folder that the first one creates."""
    with start() as console:
        assert "plughost new hello pip install --editable ./plughost-hello" in _text(console.get().text)


def test_facts_are_formatted_for_people() -> None:
    """Bytes are sizes, and times are ages; a check's own data is shown unchanged."""
    now = datetime(2026, 11, 24, 12, tzinfo=UTC)
    data = {
        "freeBytes": 83_005_575_168,
        "notAfter": "2027-12-26T00:00:00+00:00",
        "created": "2026-11-24T10:30:00Z",
        "local": "2026-11-24T10:30:00",
        "pid": 12345,
        "rows": 12345,
        "well": True,
        "some-plugin": "failed",
    }
    assert [tuple(each) for each in facts(data, now)] == [
        ("free", "77.3 GiB", "83005575168 bytes"),
        ("not after", "in 396 d 12 h", "2027-12-26T00:00:00+00:00"),
        ("created", "1 h 30 min ago", "2026-11-24T10:30:00Z"),
        ("local", "2026-11-24T10:30:00", ""),
        ("pid", "12345", ""),
        ("rows", "12,345", ""),
        ("well", "True", ""),
        ("some-plugin", "failed", ""),
    ]


def test_hooks_are_listed_with_their_plugins(console: Console) -> None:
    """Each hook lists its plugins in the order of their calls, and each site its middleware."""
    text = _text(console.get("/hooks").text)
    assert re.search(r"register_routes Return .* Called at build\. dev-console shop ", text)
    assert "site main console-headers dev-console till shop" in text


def test_the_load_report_shows_each_stage(console: Console) -> None:
    """It has the times of a plugin's import and hooks."""
    assert re.search(r"shop [\d.]+ m?s import [\d.]+ m?s .*register_routes [\d.]+ ms", _text(console.get("/load").text))


def test_the_files_of_a_page_are_small(console: Console) -> None:
    """The console's files and its largest page are under 150 KB together."""
    names = set(re.findall(r'/q/dev/assets/([\w.]+)"', "".join(console.get(path).text for path in PAGES)))
    assert {"console.css", "console.js", "log.js", "requests.js"} <= names
    files = sum(len(console.get(f"/assets/{name}").content) for name in names)
    assert files + max(len(console.get(path).content) for path in PAGES) < 150_000


def test_the_vital_signs_are_shown(console: Console) -> None:
    """Requests, errors and times are counted, and each sign has a plot."""
    for path in ("/items", "/items/broken"):
        console.client.get(path)
    page = console.get().text
    assert re.search(r"Errors</b> <strong>1</strong>", page)
    assert re.search(r"Median time</b> <strong>[\d.e-]+ m?s</strong>", page)
    signs = console.get("/vitals").text
    assert signs.count("<svg") == 7
    assert re.search(r'<rect x="\d+" y="0" width="2" height="100"', signs)


def test_vital_signs_are_current_after_the_clock_was_set_back(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health is checked anew, requests of the hours to come are forgotten, and no reload is in the future."""
    steps: dict[int, Any] = {}
    vitals = Vitals(steps, threading.Lock(), {}, "dev-console", console.host.host.view)
    vitals.record_reload({"swapped": True})
    vitals.signs(lambda: ((), 1))
    monkeypatch.setattr("plughost_dev_console.vitals.time", lambda: time() - 7200)
    signs = {each.name: each.value for each in vitals.signs(lambda: (("till",), 1))}
    assert (signs["Health"], signs["Last reload"], len(steps)) == ("1 of 1 down", "0 s ago", 1)
