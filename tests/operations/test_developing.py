"""`plughost serve --dev --reload`: code that an author saves or installs in place is served at once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.waiting import wait_until

from .environments import Sandbox, Supplies
from .wheels import speaker_wheel

SOURCE: Final = """
from plughost import Operation, Route, RouteGroup, hookimpl


class Say:
    def on_get(self, req, resp):
        resp.media = {"word": "one"}


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/edited", routes=(Route("", Say(), {"GET": Operation(summary="Say")}),))]
"""
SAVED_MEANWHILE: Final = f"""
from pathlib import Path

if not Path("saved").exists():
    Path("saved").touch()
    Path(__file__).write_text(Path(__file__).read_text().replace("one", "two"))
{SOURCE}
"""
"""A plugin that is saved while it is loaded for the first time."""
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


def install_in_place(sandbox: Sandbox, project: Path, way: str, *, last: bool = True) -> None:
    """Install the module `edited` of a folder in place, as pip does for builders that name folders or bring finders.

    Args:
        sandbox: Where.
        project: The folder.
        way: `folder` or `finder`.
        last: Write the last file, too.
    """
    info = sandbox.site / "plughost_edited-1.0.dist-info"
    files = {"_edited.pth": f"{project}\n"}
    if way == "finder":
        files = {
            "_edited.pth": "import _finder; _finder.install()\n",
            "_finder.py": f"FILE = {str(project / 'edited.py')!r}\n{FINDER}",
        }
    for name, text in files.items():
        (sandbox.site / name).write_text(text)
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plughost-edited\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(f'{{"url": "{project.as_uri()}", "dir_info": {{"editable": true}}}}')
    (info / "entry_points.txt").write_text("[plughost.plugins]\nedited = edited\n")
    if last:
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in (*files, f"{info.name}/METADATA")))


@pytest.mark.parametrize("way", ["folder", "finder"])
def test_installed_or_saved_code_is_served_automatically(sandbox: Sandbox, tmp_path: Path, way: str) -> None:
    """A new plugin is found, an edit takes effect, an error keeps the last good version, others keep their memory."""
    sandbox.put(speaker_wheel(sandbox.wheels, "other", "1.0", "other"))
    project = tmp_path / "project"
    project.mkdir()
    source = project / "edited.py"
    source.write_text(SOURCE)
    with sandbox.serving("--dev", "--reload") as host:
        assert host.get("/other").json()["count"] == 1
        install_in_place(sandbox, project, way)
        wait_until(lambda: host.get("/edited").status_code == 200)
        source.write_text(SOURCE.replace("one", "two"))
        wait_until(lambda: host.get("/edited").json() == {"word": "two"})
        source.write_text("this is no Python")
        wait_until(lambda: host.status()["last_reload"]["problems"] != [])
        assert "SyntaxError" in host.status()["last_reload"]["failed"][0][1]
        assert host.get("/edited").json() == {"word": "two"}
        source.write_text(SOURCE.replace("one", "three"))
        wait_until(lambda: host.get("/edited").json() == {"word": "three"})
        for path in (*(sandbox.site / "plughost_edited-1.0.dist-info").iterdir(), sandbox.site / "_edited.pth"):
            path.unlink()
        (sandbox.site / "plughost_edited-1.0.dist-info").rmdir()
        wait_until(lambda: host.get("/edited").status_code == 404)
        assert host.get("/other").json()["count"] == 2


def test_a_missing_entry_point_is_reported_by_a_reload(sandbox: Sandbox, tmp_path: Path) -> None:
    """An author who forgot or lost it needn't search for the cause."""
    (tmp_path / "edited.py").write_text(SOURCE)
    install_in_place(sandbox, tmp_path, "folder")
    info = sandbox.site / "plughost_edited-1.0.dist-info"
    with sandbox.serving("--dev", "--reload") as host:
        assert host.get("/edited").status_code == 200
        (info / "METADATA").write_text(f"{(info / 'METADATA').read_text()}Requires-Dist: plughost\n")
        (info / "entry_points.txt").unlink()
        (info / "RECORD").write_text("_edited.pth,,\n")
        message = "plughost-edited is installed, but is not a plugin: it has no entry point in plughost.plugins"
        wait_until(lambda: message in (sandbox.folder.parent / "host.log").read_text())


@pytest.mark.parametrize("load", ["start", "reload"])
def test_a_save_during_a_load_is_served_next(sandbox: Sandbox, tmp_path: Path, load: str) -> None:
    """Code saved while the host imports it, at the start or after an installation, is imported again."""
    sandbox.put(speaker_wheel(sandbox.wheels, "other", "1.0", "other"))  # a site without plugins has no listener
    project = tmp_path / "project"
    project.mkdir()
    (project / "edited.py").write_text(SAVED_MEANWHILE)
    if load == "start":
        install_in_place(sandbox, project, "folder")
    with sandbox.serving("--dev", "--reload") as host:
        if load == "reload":
            install_in_place(sandbox, project, "folder")
        wait_until(lambda: host.get("/edited").json() == {"word": "two"})


def test_a_save_of_a_single_file_during_the_start_is_served_next(sandbox: Sandbox) -> None:
    """A file of `plugins_dir` that is saved while the host imports it is imported again."""
    settings = sandbox.folder / "plughost.toml"
    settings.write_text(f'plugins_dir = "plugins"\n{settings.read_text()}')
    (sandbox.folder / "plugins").mkdir()
    (sandbox.folder / "plugins" / "edited.py").write_text(SAVED_MEANWHILE)
    with sandbox.serving("--dev", "--reload") as host:
        wait_until(lambda: host.get("/edited").json() == {"word": "two"})


def test_the_sources_of_a_plugin_whose_first_load_was_refused_are_watched(sandbox: Sandbox, tmp_path: Path) -> None:
    """When its author has corrected the plugin, it is served."""
    sandbox.put(speaker_wheel(sandbox.wheels, "other", "1.0", "other"))  # a site without plugins has no listener
    project = tmp_path / "project"
    project.mkdir()
    (project / "edited.py").write_text("this is no Python")
    with sandbox.serving("--dev", "--reload", "--strict") as host:
        install_in_place(sandbox, project, "folder")
        wait_until(lambda: "SyntaxError" in str(host.status()["last_reload"]))
        (project / "edited.py").write_text(SOURCE)
        wait_until(lambda: host.get("/edited").status_code == 200)


def test_a_load_during_an_installation_is_repeated_afterwards(sandbox: Sandbox, tmp_path: Path) -> None:
    """The host notices the installer's last files, even in an existing metadata folder."""
    sandbox.put(speaker_wheel(sandbox.wheels, "other", "1.0", "other"))  # a site without plugins has no listener
    project = tmp_path / "project"
    project.mkdir()
    (project / "edited.py").write_text(SOURCE)
    with sandbox.serving("--dev", "--reload") as host:
        install_in_place(sandbox, project, "folder", last=False)
        wait_until(lambda: "there is no module edited" in str(host.status()["last_reload"]))
        install_in_place(sandbox, project, "folder")
        wait_until(lambda: host.get("/edited").status_code == 200)


def test_a_virtual_environment_in_the_project_is_not_its_source(tmp_path: Path, supplies: Supplies) -> None:
    """The plugin is imported afresh, but not the host, though both are inside of the project's folder."""
    project = tmp_path / "project"
    sandbox = Sandbox(project / ".venv", supplies)
    source = project / "edited.py"
    source.write_text(SOURCE)
    install_in_place(sandbox, project, "folder")
    with sandbox.serving("--dev", "--reload") as host:
        for word in ("two", "three"):
            source.write_text(SOURCE.replace("one", word))
            wait_until(lambda word=word: host.get("/edited").json() == {"word": word})  # type: ignore[misc] # a loop's word


def test_every_folder_of_a_package_is_watched(sandbox: Sandbox, tmp_path: Path) -> None:
    """Subpackages may have the names of a project's usual other folders, and are sources all the same."""
    package = tmp_path / "project" / "edited"
    names = ("plugins", "docs", "tests")
    for name in names:
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("WORD = 'old'\n")
    words = f"[{', '.join(f'{name}.WORD' for name in names)}]"
    source = SOURCE.replace('"one"', words)
    (package / "__init__.py").write_text(f"from edited import {', '.join(names)}\n{source}")
    install_in_place(sandbox, tmp_path / "project", "folder")
    with sandbox.serving("--dev", "--reload") as host:
        for number, name in enumerate(names, 1):
            (package / name / "__init__.py").write_text("WORD = 'new'\n")
            expected = {"word": ["new"] * number + ["old"] * (len(names) - number)}
            wait_until(lambda expected=expected: host.get("/edited").json() == expected)  # type: ignore[misc] # its default


def test_reload_is_for_development(sandbox: Sandbox) -> None:
    """Without `--dev` it is refused, and the error names the alternative."""
    assert "needs --dev" in sandbox.run("serve", "--reload", code=2)
