"""Snapshots: how installed code differs from the imported code."""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.host.packages import write_package

from plughost._plugins.distributions import unload
from plughost._plugins.environment import Environment
from plughost.testing import running_host

if TYPE_CHECKING:
    from plughost._plugins.distributions import Snapshot


def snapshot_of(folder: Path) -> Snapshot:
    """Return the snapshot of the one distribution in a folder."""
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


def test_the_advice_for_a_faulty_editable_install_is_to_correct_it(
    editable: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who develops a plugin has no other author to report its fault to."""
    site, project = editable
    (site / "edited-1.0.dist-info" / "entry_points.txt").write_text("[plughost.plugins]\nedited = module\n")
    (project / "src" / "module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(project / "src")
    with running_host(distributions=list(metadata.distributions(path=[str(site)]))) as host:
        (edited,) = host.host.view.plugins
    assert edited.reason is not None
    assert edited.reason.endswith(f"; mend {project}, which is your own.")


def test_an_edited_source_file_changes_an_editable_install(editable: tuple[Path, Path]) -> None:
    """A changed source file changes the fingerprint of an editable install."""
    site, project = editable
    before = snapshot_of(site)
    (project / "src" / "module.py").write_text("x = 11\n")
    assert snapshot_of(site).fingerprint != before.fingerprint


def test_other_files_than_sources_change_nothing(editable: tuple[Path, Path]) -> None:
    """Tests, caches, notes, environments, editors' locks, and a host's settings and data change nothing."""
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
    """Files in `tests` or `plugins` are sources if the folder is inside of a package."""
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
def test_every_kind_of_file_that_a_plugin_may_read_is_a_source(editable: tuple[Path, Path], suffix: str) -> None:
    """A new file of each kind changes the fingerprint of an editable install."""
    site, project = editable
    before = snapshot_of(site)
    (project / "src" / f"new{suffix}").write_text("")
    assert snapshot_of(site).fingerprint != before.fingerprint


def test_a_file_with_an_undecodable_name_is_a_source(editable: tuple[Path, Path]) -> None:
    """A file with such a name, such as from an old archive, prevents no reload."""
    site, project = editable
    before = snapshot_of(site)
    (project / "src" / os.fsdecode(b"name\xff.json")).write_text("")
    assert snapshot_of(site).fingerprint != before.fingerprint


def test_a_project_url_may_end_with_a_slash(editable: tuple[Path, Path]) -> None:
    """The URL of an editable install names its folder with or without a final slash."""
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


def test_another_version_or_record_changes_the_fingerprint(tmp_path: Path) -> None:
    """An installed distribution's fingerprint depends on its version and on each of its files."""
    states = set()
    for version, content in (("1.0", "x = 1"), ("1.0", "x = 2"), ("2.0", "x = 2")):
        write_package(tmp_path, "lib", {"lib.py": content}, version=version)
        states.add(snapshot_of(tmp_path).fingerprint)
    assert len(states) == 3


def test_a_damaged_installation_has_a_version(tmp_path: Path) -> None:
    """An unreadable RECORD names no files, and is no error."""
    write_package(tmp_path, "lib", {"lib.py": ""}, version="1.5")
    (tmp_path / "lib-1.5.dist-info" / "RECORD").write_text(f"{'x' * 200_000},,\n")
    now = snapshot_of(tmp_path)
    assert (now.version, now.files) == ("1.5", frozenset())


@pytest.mark.parametrize("name", ["core.so", "core.pyd", "core.dylib", "lib.cpython-311-x86_64-linux-gnu.so"])
def test_compiled_modules_are_detected(name: str, tmp_path: Path) -> None:
    """The snapshot of a distribution with a compiled module says so: Python can't import one twice."""
    write_package(tmp_path, "lib", {name: ""})
    assert snapshot_of(tmp_path).compiled


def test_compiled_modules_are_never_unloaded(tmp_path: Path) -> None:
    """A distribution owns its Python modules, but not its compiled ones, which can't be imported twice."""
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
def test_a_namespace_package_belongs_to_the_owner_of_its_folders(tmp_path: Path, folders: list[str], own: bool) -> None:
    """A distribution owns a package without a file if it has modules in each of the package's folders."""
    write_package(tmp_path, "lib", {"lib.py": "", "space/part.py": ""})
    module = ModuleType("space")
    module.__path__ = [str(tmp_path / each) for each in folders]
    assert snapshot_of(tmp_path).owns(module) is own


def test_a_namespace_package_of_a_project_is_its_own(editable: tuple[Path, Path]) -> None:
    """A package without a file belongs to the editable install that contains its folder."""
    site, project = editable
    module = ModuleType("space")
    module.__path__ = [str(project / "src" / "space")]
    assert snapshot_of(site).owns(module)


def test_restored_modules_are_found_in_a_shared_namespace_package(folder: Path) -> None:
    """A namespace package stays while others have modules in it, so its attributes are restored, too."""
    write_package(folder, "left", {"restored_space/left.py": ""})
    (folder / "restored_space" / "right.py").touch()
    before, _ = (importlib.import_module(f"restored_space.{name}") for name in ("left", "right"))
    space = sys.modules["restored_space"]
    restore = unload([snapshot_of(folder)])
    assert importlib.import_module("restored_space.left") is not before
    restore()
    assert sys.modules["restored_space"] is space
    assert space.left is before
