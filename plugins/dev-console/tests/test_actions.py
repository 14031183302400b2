"""The buttons' effects on the host."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from plughost import Operation, PluginContext, Route, RouteGroup, hookimpl
from plughost_dev_console.jobs import Jobs

if TYPE_CHECKING:
    import falcon

    from .conftest import Console, Start


def test_a_plugin_is_disabled_and_enabled(console: Console) -> None:
    """Its routes disappear and return, the page shows the result, and the session continues."""
    page = console.finish(console.post("/plugins/shop/state", state="disabled"))
    assert re.search(r"Disable shop: done.*<dt>disabled</dt><dd>shop</dd>", page, re.DOTALL)
    assert console.client.get("/items").status_code == 404
    page = console.finish(console.post("/plugins/shop/state", state="enabled"))
    assert re.search(r"Enable shop: done.*<dt>added</dt><dd>shop</dd>", page, re.DOTALL)
    assert console.client.get("/items").status_code == 200


def test_a_reload_is_reported(console: Console) -> None:
    """The result names the generation, and the load report contains it."""
    page = console.finish(console.post("/reload"))
    assert "Generation 2 serves" in page
    assert "Last reload: generation 2" in console.get("/load").text


def test_an_action_that_gets_no_thread_does_not_prevent_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the system has a free thread again, the next action starts."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    jobs = Jobs({})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            jobs.start("Reload", lambda: "done")
    assert jobs.start("Reload", lambda: "done") is not None


def test_a_failed_action_is_reported(start: Start) -> None:
    """A required plugin stays enabled, and the page gives the reason."""
    with start(_settings={"required": ["dev-console", "other"]}, other=Slow()) as console:
        page = console.finish(console.post("/plugins/other/state", state="disabled"))
        assert "Disable other: failed" in page
        assert "The setting required names other" in page


def test_the_console_does_not_disable_itself(console: Console) -> None:
    """Unknown plugins and states are refused, too."""
    assert console.post("/plugins/dev-console/state", state="disabled").status_code == 409
    assert console.post("/plugins/nobody/state", state="disabled").status_code == 404
    assert console.post("/plugins/shop/state", state="purged").status_code == 400


class Slow:
    """A plugin whose answer waits for the test."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Wait."""
        self.entered.set()
        self.go.wait(60)
        resp.media = []

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/slow", routes=(Route("", self, {"GET": Operation(summary="Wait")}),))]


def test_a_reload_does_not_block_the_console(start: Start) -> None:
    """While the reload waits for a slow request, the page shows its progress and refuses another change."""
    slow = Slow()
    with start(slow=slow) as console:
        waiting = threading.Thread(target=httpx.get, args=[f"{console.origin}/slow"], kwargs={"timeout": 60})
        waiting.start()
        assert slow.entered.wait(30)
        answer = console.post("/reload")
        try:
            assert "Reload: in progress" in console.client.get(answer.headers["Location"]).text
            assert console.post("/reload").status_code == 409
        finally:
            slow.go.set()
            waiting.join()
        assert "Reload: done" in console.finish(answer)


def test_a_session_survives_a_new_instance_of_the_console(start: Start) -> None:
    """Removing the authenticator makes a new instance, which keeps sessions and records."""

    class Names:
        @hookimpl
        def register_authenticator(self, context: PluginContext[Any]) -> Any:
            """Authenticate nobody."""
            return lambda req: None

    with start(names=Names) as console:
        console.client.get("/before")
        page = console.finish(console.post("/plugins/names/state", state="disabled"))
        assert re.search(r"<dt>changed</dt><dd>[^<]*dev-console", page)
        assert [each["path"] for each in console.get("/requests/new").json()] == ["/before"]
