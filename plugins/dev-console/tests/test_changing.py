"""Settings and purges need a confirmation, and every tab is notified of changes."""

from __future__ import annotations

import html
import json
import re
import threading
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from plughost import hookimpl
from plughost.testing import plugin_distribution

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Console, Start


class Shelf:
    """A plugin with a setting."""

    class Settings(BaseModel):
        """Its table."""

        days: int = Field(3, ge=1, description="Days that `tea` is kept")

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model."""
        return self.Settings


KEY = "plugins.shelf.days"


def _file(console: Console) -> str:
    file = console.host.host.settings.file
    assert file is not None
    return file.read_text()


def test_a_setting_is_changed_after_a_preview(start: Start) -> None:
    """The first form shows the difference and writes nothing; the second writes and reloads."""
    with start(shelf=Shelf) as console:
        assert "Days that <code>tea</code> is kept" in console.get(f"/settings/edit?key={KEY}").text
        before = _file(console)
        page = html.unescape(console.post("/settings/edit", key=KEY, value="5").text)
        assert "+days = 5" in page
        assert "shelf is reloaded" in page, "its data in memory is lost"
        assert _file(console) == before
        page = console.finish(console.post("/settings/edit", key=KEY, value="5", seen="yes"))
        assert f"Set {KEY}: done" in page
        assert "days = 5" in _file(console)
        undo = dict(re.findall(r'name="(key|value|what)" value="([^"]*)"', page.partition("#result")[0]))
        assert undo == {"key": KEY, "value": "3", "what": "default"}
        assert "-days = 5" in html.unescape(console.post("/settings/edit", **undo).text)
        console.finish(console.post("/settings/edit", key=KEY, what="default", seen="yes"))
        assert "days = 5" not in _file(console)


def test_a_refused_reload_is_reported_on_the_overview(start: Start) -> None:
    """The overview and the load report give the reason."""
    with start(shelf=Shelf) as console:
        file = console.host.host.settings.file
        assert file is not None
        file.write_text(f"{_file(console)}\n[plugins.shelf]\ndays = 0\n")
        console.finish(console.post("/reload"))
        for path in ("", "/load"):
            text = html.unescape(console.get(path).text)
            assert "refused; generation 1 still serves" in text
            assert "greater than or equal to 1" in text


def test_a_change_that_waits_for_a_restart_is_not_called_refused(start: Start) -> None:
    """If code on which the host runs was upgraded, the file keeps the change, and the page offers to undo it."""
    beside = [plugin_distribution("engine", Shelf(), distribution="waitress", version="3.0.2")]
    with start(shelf=Shelf, _beside=beside) as console:
        beside[:] = [plugin_distribution("engine", Shelf(), distribution="waitress", version="3.0.3")]
        page = console.finish(console.post("/settings/edit", key=KEY, value="5", seen="yes"))
        assert f"Set {KEY}: needs a restart; generation 1 still serves" in page
        assert "Undo" in page
        assert "days = 5" in _file(console)
        assert "The last reload: needs a restart; generation 1 still serves" in console.get().text


def test_what_was_done_beside_a_broken_plugin_is_recorded_as_done(start: Start, tmp_path: Path) -> None:
    """In the audit trail, `failed` means that it was not done; here a change serves, though another plugin doesn't."""
    trail = tmp_path / "audit.jsonl"
    settings = {"log": {"audit": str(trail)}}
    with start(shelf=Shelf, broken=ImportError("no such library"), _settings=settings) as console:
        console.finish(console.post("/settings/edit", key=KEY, value="5", seen="yes"))
        done = [(each["what"], each["outcome"]) for each in map(json.loads, trail.read_text().splitlines())]
        assert done[-2:] == [("reload", "ok"), ("console", "ok")]


def test_an_invalid_setting_is_reported_and_not_written(start: Start) -> None:
    """The reason appears in place of the difference; secrets and unknown keys have no form."""
    settings = {"stores": {"urls": {"unused": "postgresql://me:hunter2@db.example/x"}}}
    with start(shelf=Shelf, _settings=settings) as console:
        before = _file(console)
        assert "greater than or equal to 1" in html.unescape(console.post("/settings/edit", key=KEY, value="0").text)
        for absurd in ("9" * 5000, "[" * 5000):
            assert console.post("/settings/edit", key=KEY, value=absurd).status_code == 200
        assert console.get("/settings/edit?key=stores.urls").status_code == 409
        assert console.get("/settings/edit?key=nothing").status_code == 404
        assert _file(console) == before


def test_only_a_disabled_plugin_can_be_purged(start: Start) -> None:
    """A serving plugin is refused, and the purge of one without a store says so."""
    with start(shelf=Shelf) as console:
        assert console.post("/plugins/shelf/purge").status_code == 409
        console.finish(console.post("/plugins/shelf/state", state="disabled"))
        assert "Purge its data" in console.get("/plugins/shelf").text
        page = console.finish(console.post("/plugins/shelf/purge"))
        assert "No installed plugin named shelf has a store" in html.unescape(page)


def test_every_tab_is_notified_of_a_reload(start: Start) -> None:
    """A stream sends the generation at once and a reload's result as it happens; later streams send the result, too."""
    with start(shelf=Shelf) as console:
        with console.client.stream("GET", "/q/dev/events", timeout=60) as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("data"))
            assert '"generation":1' in next(lines)
            control = console.host.host.view.control
            switching = threading.Thread(target=control.switch, args=["shelf"], kwargs={"enabled": False})
            switching.start()
            event = next(lines)
            switching.join()
        assert '"generation":2' in event
        assert "disabled: shelf" in event
        with console.client.stream("GET", "/q/dev/events", timeout=60) as stream:
            assert "disabled: shelf" in next(line for line in stream.iter_lines() if line.startswith("data"))


def test_the_palette_has_all_places(console: Console) -> None:
    """It lists pages, plugins, operations and settings, and each address exists."""
    places = console.get("/palette").json()
    kinds = {each["kind"]: each["href"] for each in places}
    assert {"page", "plugin, active", "page of shop", "try", "setting"} <= set(kinds)
    assert [console.client.get(href).status_code for href in kinds.values()] == [200] * len(kinds)
