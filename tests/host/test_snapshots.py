"""Changes: what of the installed code differs from what was imported."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.host.packages import write_package

from plughost._plugins.environment import Environment

if TYPE_CHECKING:
    from plughost._plugins.snapshots import Snapshot


def snapshot_of(folder: Path) -> Snapshot:
    """Return the distribution that a folder holds."""
    environment = Environment(metadata.distributions(path=[str(folder)]))
    return next(iter(environment.snapshots(environment.installed.keys()).values()))


@pytest.fixture
def editable(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with the metadata of an editable install, and the project's folder."""
    project, site = tmp_path / "project", tmp_path / "site"
    (project / "src").mkdir(parents=True)
    (project / "src" / "module.py").write_text("x = 1\n")
    write_package(site, "edited", {})
    direct = {"url": project.as_uri(), "dir_info": {"editable": True}}
    (site / "edited-1.0.dist-info" / "direct_url.json").write_text(json.dumps(direct))
    return site, project


def test_an_edited_source_file_changes_an_editable_install(editable: tuple[Path, Path]) -> None:
    """The fingerprint of an editable install differs once a source file of it was written."""
    site, project = editable
    before = snapshot_of(site)
    (project / "src" / "module.py").write_text("x = 11\n")
    assert snapshot_of(site).fingerprint != before.fingerprint


def test_what_is_no_source_changes_nothing(editable: tuple[Path, Path]) -> None:
    """Tests, caches, notes, environments, an editor's locks, a host's settings and its data leave it as it is."""
    site, project = editable
    before = snapshot_of(site)
    (project / "src" / "__pycache__").mkdir()
    (project / "src" / "__pycache__" / "module.py").write_text("")
    for aside in ("tests", "build", "dist", "docs", "bench", "plugins", "node_modules"):
        (project / aside).mkdir()
        (project / aside / "module.py").write_text("")
    (project / "src" / "notes.txt").write_text("")
    (project / "plughost.toml").write_text('disabled = ["edited"]')
    (project / "openapi.json").write_text("{}")
    (project / "src" / ".#module.py").symlink_to("somebody@host.1234")
    (project / "venv" / "lib").mkdir(parents=True)
    (project / "venv" / "pyvenv.cfg").write_text("")
    (project / "venv" / "lib" / "library.py").write_text("")
    (project / "plughost-data" / "plugins").mkdir(parents=True)
    (project / "plughost-data" / "host.lock").write_text("")
    (project / "plughost-data" / "plugins" / "keys.json").write_text("{}")
    assert snapshot_of(site).fingerprint == before.fingerprint


def test_folders_of_a_package_are_sources_whatever_their_names(editable: tuple[Path, Path]) -> None:
    """Below the top of a project, or where that is a package itself, files in `tests` and `plugins` are sources."""
    site, project = editable
    states = {snapshot_of(site).fingerprint}
    for name in ("tests", "plugins", "docs", "build", "dist", "bench"):
        (project / "src" / name).mkdir()
        (project / "src" / name / "module.py").write_text("")
        states.add(snapshot_of(site).fingerprint)
    (project / "tests").mkdir()
    (project / "tests" / "module.py").write_text("")
    (project / "__init__.py").write_text("")
    assert f"{project}/tests/module.py" in " ".join(snapshot_of(site).sources)
    assert len(states) == 7


@pytest.mark.parametrize("suffix", [".py", ".sql", ".html", ".css", ".js", ".json", ".toml"])
def test_whatever_a_plugin_may_read_is_a_source(editable: tuple[Path, Path], suffix: str) -> None:
    """A new file of each kind changes the fingerprint of an editable install."""
    site, project = editable
    before = snapshot_of(site)
    (project / "src" / f"new{suffix}").write_text("")
    assert snapshot_of(site).fingerprint != before.fingerprint


def test_a_file_whose_name_is_no_text_is_a_source(editable: tuple[Path, Path]) -> None:
    """What an old archive unpacked, say, hinders no reload."""
    site, project = editable
    before = snapshot_of(site)
    (project / "src" / os.fsdecode(b"name\xff.json")).write_text("")
    assert snapshot_of(site).fingerprint != before.fingerprint


def test_a_project_folder_may_be_named_with_a_slash(editable: tuple[Path, Path]) -> None:
    """The URL of an editable install names its folder with or without a slash at the end."""
    site, project = editable
    direct = {"url": f"{project.as_uri()}/", "dir_info": {"editable": True}}
    (site / "edited-1.0.dist-info" / "direct_url.json").write_text(json.dumps(direct))
    assert snapshot_of(site).root == str(project)


def test_other_code_below_a_project_is_not_its_own(editable: tuple[Path, Path]) -> None:
    """A project owns its modules, but none of an environment or of another project below its folder."""
    site, project = editable
    before = snapshot_of(site)
    write_package(project / "deps", "library", {"library.py": ""})
    write_package(site, "nested", {})
    (project / "packages" / "nested").mkdir(parents=True)
    (project / "packages" / "nested" / "nested.py").write_text("")
    direct = {"url": (project / "packages" / "nested").as_uri(), "dir_info": {"editable": True}}
    (site / "nested-1.0.dist-info" / "direct_url.json").write_text(json.dumps(direct))
    environment = Environment(metadata.distributions(path=[str(site), str(project / "deps")]))
    now = environment.snapshots(["edited"])["edited"]
    assert now.fingerprint == before.fingerprint
    for path, own in (
        ("src/module.py", True),
        ("deps/library.py", False),
        ("packages/nested/nested.py", False),
        ("../elsewhere/module.py", False),
    ):
        module = ModuleType("module")
        module.__file__ = os.path.normpath(project / path)
        assert now.owns(module) is own, path


def test_another_version_or_record_is_another_state(tmp_path: Path) -> None:
    """The fingerprint of an installed distribution differs with its version, and with any of its files."""
    states = set()
    for version, content in (("1.0", "x = 1"), ("1.0", "x = 2"), ("2.0", "x = 2")):
        write_package(tmp_path, "lib", {"lib.py": content}, version=version)
        states.add(snapshot_of(tmp_path).fingerprint)
    assert len(states) == 3


def test_of_a_damaged_installation_the_version_is_known(tmp_path: Path) -> None:
    """A RECORD that can't be read names no files, and is no error."""
    write_package(tmp_path, "lib", {"lib.py": ""}, version="1.5")
    (tmp_path / "lib-1.5.dist-info" / "RECORD").write_text(f"{'x' * 200_000},,\n")
    now = snapshot_of(tmp_path)
    assert (now.version, now.files) == ("1.5", frozenset())


@pytest.mark.parametrize("name", ["core.so", "core.pyd", "core.dylib", "lib.cpython-311-x86_64-linux-gnu.so"])
def test_compiled_modules_are_known(name: str, tmp_path: Path) -> None:
    """A distribution that brings a compiled module says so: Python can't import one twice."""
    write_package(tmp_path, "lib", {name: ""})
    assert snapshot_of(tmp_path).compiled


def test_compiled_modules_are_never_unloaded(tmp_path: Path) -> None:
    """A distribution owns its Python modules, but none that can't be imported twice."""
    write_package(tmp_path, "lib", {"lib.py": "", "core.so": ""})
    owned = {}
    for file in ("lib.py", "core.so"):
        module = ModuleType("module")
        module.__file__ = str(tmp_path / file)
        owned[file] = snapshot_of(tmp_path).owns(module)
    assert owned == {"lib.py": True, "core.so": False}


@pytest.mark.parametrize(
    ("folders", "own"),
    [(["space"], True), (["other/space"], False), (["space", "other/space"], False), ([], False)],
)
def test_a_namespace_package_belongs_to_who_has_all_its_folders(tmp_path: Path, folders: list[str], own: bool) -> None:
    """A package without a file is a distribution's own where each of its folders has modules of that."""
    write_package(tmp_path, "lib", {"lib.py": "", "space/part.py": ""})
    module = ModuleType("space")
    module.__path__ = [str(tmp_path / each) for each in folders]
    assert snapshot_of(tmp_path).owns(module) is own


def test_a_namespace_package_of_a_project_is_its_own(editable: tuple[Path, Path]) -> None:
    """A package without a file belongs to the editable install whose folder it is in."""
    site, project = editable
    module = ModuleType("space")
    module.__path__ = [str(project / "src" / "space")]
    assert snapshot_of(site).owns(module)
