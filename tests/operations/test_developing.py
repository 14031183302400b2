"""`plughost serve --dev --reload`: what an author saves or installs in place is served at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from .environments import PATIENCE, Sandbox, speaker

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE: Final = """
from plughost import Operation, Route, RouteGroup, hookimpl


class Say:
    def on_get(self, req, resp):
        resp.media = {"word": "one"}


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/edited", routes=(Route("", Say(), {"GET": Operation(summary="Say")}),))]
"""
FINDER: Final = """
import sys
from importlib.util import spec_from_file_location


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, FILE) if name == "edited" else None


def install():
    sys.meta_path.append(Finder)
"""


def install_in_place(sandbox: Sandbox, project: Path, way: str) -> None:
    """Install the module `edited` of a folder in place, as pip does for builders that name folders or bring finders."""
    info = sandbox.site / "plughost_edited-1.0.dist-info"
    files = {"_edited.pth": f"{project}\n"}
    if way == "finder":
        files = {
            "_edited.pth": "import _finder; _finder.install()\n",
            "_finder.py": f"FILE = {str(project / 'edited.py')!r}\n{FINDER}",
        }
    for name, text in files.items():
        (sandbox.site / name).write_text(text)
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plughost-edited\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(f'{{"url": "{project.as_uri()}", "dir_info": {{"editable": true}}}}')
    (info / "entry_points.txt").write_text("[plughost.plugins]\nedited = edited\n")
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in (*files, f"{info.name}/METADATA")))


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    passed = threading.Event()
    timer = threading.Timer(PATIENCE, passed.set)
    timer.start()
    while not condition():
        assert not passed.wait(0.05), "it did not happen"
    timer.cancel()


@pytest.mark.parametrize("way", ["folder", "finder"])
def test_what_is_installed_in_place_or_saved_is_served_without_being_asked(
    sandbox: Sandbox, tmp_path: Path, way: str
) -> None:
    """A new plugin is found, an edit takes effect, an error leaves the last good one, and others keep their memory."""
    sandbox.put(speaker(sandbox.wheels, "other", "1.0", "other"))
    project = tmp_path / "project"
    project.mkdir()
    source = project / "edited.py"
    source.write_text(SOURCE)
    with sandbox.serving("--dev", "--reload") as host:
        assert host.get("/other").json()["count"] == 1
        install_in_place(sandbox, project, way)
        until(lambda: host.get("/edited").status_code == 200)
        source.write_text(SOURCE.replace("one", "two"))
        until(lambda: host.get("/edited").json() == {"word": "two"})
        source.write_text("this is no Python")
        until(lambda: host.status()["last_reload"]["problems"] != [])
        assert "SyntaxError" in host.status()["last_reload"]["failed"][0][1]
        assert host.get("/edited").json() == {"word": "two"}
        source.write_text(SOURCE.replace("one", "three"))
        until(lambda: host.get("/edited").json() == {"word": "three"})
        for path in (*(sandbox.site / "plughost_edited-1.0.dist-info").iterdir(), sandbox.site / "_edited.pth"):
            path.unlink()
        (sandbox.site / "plughost_edited-1.0.dist-info").rmdir()
        until(lambda: host.get("/edited").status_code == 404)
        assert host.get("/other").json()["count"] == 2


def test_reload_is_for_development(sandbox: Sandbox) -> None:
    """Without `--dev` it is refused, and what to do instead is named."""
    assert "needs --dev" in sandbox.run("serve", "--reload", code=2)
