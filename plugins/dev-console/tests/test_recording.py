"""Records of requests and log lines, and how they are shown."""

from __future__ import annotations

from collections import deque
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any

import pytest

from plughost import Event, Operation, PluginContext, RequestRecord, Route, RouteGroup, hookimpl
from plughost_dev_console.lines import Lines

if TYPE_CHECKING:
    import falcon

    from .conftest import Console, Start


def _new(console: Console, after: int | str = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = console.get(f"/requests/new?after={after}").json()
    return found


def test_new_requests_are_listed(console: Console) -> None:
    """Requests after a given number have plugin, status and time; the console's own are left out."""
    console.client.get("/items?x=1")
    console.client.get("/nowhere")
    console.get("/plugins")
    first, second = _new(console)
    assert (first["method"], first["path"], first["status"]) == ("GET", "/items?x=1", 200)
    assert (first["plugin"], first["site"], first["http"]) == ("shop", "main", "HTTP/1.1")
    assert first["ms"] >= 0
    assert (second["plugin"], second["status"]) == ("", 404)
    assert _new(console, after=first["number"]) == [second]


def test_a_failed_request_is_listed_with_its_id(console: Console) -> None:
    """The id leads to the traceback in the log."""
    console.client.get("/items/broken", headers={"X-Request-ID": "mine"})
    assert [(each["status"], each["id"]) for each in _new(console)] == [(500, "mine")]
    (line,) = console.lines(after="0&level=error")
    assert line["id"] == "mine"
    assert 'href="/q/dev/requests?q=mine"' in console.get("/log?q=mine&level=error").text
    assert "ValueError" in line["trace"]


class LineCounter:
    """A plugin that iterates over the lines of a body."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Count them."""
        resp.media = len(list(req.bounded_stream))

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/lines", routes=(Route("", self, {"POST": Operation(summary="Count")}),))]


def test_a_recorded_body_can_be_read_by_lines(start: Start) -> None:
    """A resource gets the same kind of stream as without the console."""
    with start(lines=LineCounter()) as console:
        assert console.client.post("/lines", content=b"one\ntwo\nthree").json() == 3


def test_only_the_last_requests_are_kept(start: Start) -> None:
    """The oldest ones are removed, so that memory is limited."""
    with start(_settings={"plugins": {"dev-console": {"requests": 10}}}) as console:
        for number in range(25):
            console.client.get(f"/{number}")
        assert [each["path"] for each in _new(console)] == [f"/{number}" for number in range(15, 25)]


@pytest.mark.parametrize("after", ["x", "1e9", "-"])
def test_an_invalid_number_is_400(console: Console, after: str) -> None:
    """It is the client's mistake, not the server's."""
    assert console.get(f"/requests/new?after={after}").status_code == 400


def test_a_log_line_is_recorded_once_as_text() -> None:
    """Two observers, while one replaces the other, don't duplicate it; its values are formatted at once."""
    ring: deque[dict[str, Any]] = deque(maxlen=10)
    one, other = (Lines(ring, deque(), count(1), "dev-console") for _ in range(2))
    held: list[int] = [1]
    event = Event("line", "shop", {"event": "sold", "level": "info", "items": held, "trace": "a\nb", "timestamp": "T"})
    one(event)
    other(event)
    held.append(2)
    (line,) = one.since(0)
    assert (line["text"], line["level"], line["plugin"], line["fields"]) == ("sold", "info", "shop", "items=[1]")
    assert line["trace"] == "a\nb"


def test_requests_remove_no_warning(console: Console) -> None:
    """After a thousand more lines, the earlier warning is still there; the search finds it."""
    console.host.host.logger.warning("the till is open", plugin="shop")
    for number in range(1100):
        console.host.host.logger.info("request", plugin="shop", path=f"/{number}")
    assert len(console.lines(1001)) == 1001
    assert [each["text"] for each in console.lines(after="0&level=warning&q=TILL")] == ["the till is open"]
    assert "the till is open" not in console.get("/log").text
    assert "the till is open" in console.get("/log?level=warning").text


def test_requests_are_filtered_by_plugin_status_and_time(console: Console) -> None:
    """A search filters them, too, and they can be sorted by duration."""
    for path in ("/items/one", "/items/broken", "/nowhere"):
        console.client.get(path)
    chosen = {
        "plugin=shop": ["/items/one", "/items/broken"],
        "plugin=none": ["/nowhere"],
        "status=bad": ["/items/broken", "/nowhere"],
        "status=5&minutes=1": ["/items/broken"],
        f"status=5&minutes={'9' * 400}": ["/items/broken"],
        "q=get+ONE": ["/items/one"],
    }
    for query, paths in chosen.items():
        assert [each["path"] for each in console.get(f"/requests/new?{query}").json()] == paths
    slowest = [each["ms"] for each in console.get("/requests/new?order=slowest").json()]
    assert slowest == sorted(slowest)


def test_requests_that_the_version_before_recorded_are_left_out(start: Start) -> None:
    """They lack what the clock was, and an upgrade while the host runs finds them still in memory."""
    with start(_settings={"plugins": {"dev-console": {"requests": 10}}}) as console:
        request = RequestRecord(0.0, 0.0, "GET", "/before", "200 OK", "shop", "/before", "main", "HTTP/1.1", "x")
        console.host.host.view.keep("dev-console", "requests 10", deque[Any]).append((1, request))
        console.client.get("/after")
        assert [each["path"] for each in _new(console)] == ["/after"]


def test_requests_after_the_clock_was_set_have_the_new_time(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a night's sleep of the machine, the last five minutes are those by its clock."""
    console.client.get("/items/evening")
    (evening,) = _new(console)
    monkeypatch.setattr("plughost_dev_console.recording.time", lambda: time() + 8 * 3600)
    console.client.get("/items/morning")
    (morning,) = _new(console, after="0&minutes=5")
    assert (morning["path"], round((morning["at"] - evening["at"]) / 3600)) == ("/items/morning", 8)
    assert _new(console) == [evening, morning]


def test_no_target_takes_long_to_show(console: Console) -> None:
    """Any web page can send such requests here; the host responds to nobody while it looks for secrets in them."""
    for _ in range(100):
        console.client.get("/items/broken?" + "?token" * 330)
    assert len(_new(console)) == 100


def test_a_request_is_shown_with_its_headers_and_its_log(console: Console) -> None:
    """Secrets are masked; trace id, timings and traceback are shown."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    secrets = {"Authorization": "Bearer hunter2", "Cookie": "a=hunter2", "X-Api-Key": "hunter2"}
    headers = {**secrets, "traceparent": f"00-{trace}-00f067aa0ba902b7-01", "X-Seen": "yes"}
    console.client.get("/items/broken?token=hunter2&x=1", headers=headers)
    (found,) = _new(console)
    page = console.get(f"/requests/{found['number']}").text
    for shown in (
        trace,
        "X-Seen",
        "Bearer ••••••",
        "ValueError",
        "X-Request-Id",
        "token=••••••&amp;x=1",
        "waited for a thread",
        "stores",
    ):
        assert shown in page
    assert "hunter2" not in page + str(found)
    assert console.get("/requests/999").status_code == 404
    assert console.get("/requests/x").status_code == 404
