"""Folders that `.pth` files in site-packages name are importable exactly as long as the files exist."""

from __future__ import annotations

import json
import os
import site
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from tests.host.packages import remove_package, write_package

from plughost._plugins.discovery import PthFiles
from plughost._plugins.environment import Environment

Install = Callable[..., None]

FINDER = """
import sys


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None


def install():
    sys.meta_path.append(Finder)
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that replaces site-packages; modules imported from it are removed afterwards."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(folder)])
    monkeypatch.setattr(site, "getusersitepackages", lambda: str(tmp_path / "nowhere"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "in_place_finder", raising=False)
    return folder


@pytest.fixture
def install(packages: Path) -> Install:
    """Install a distribution, editable by default, whose `.pth` file holds the given lines."""

    def install(name: str, *lines: str, editable: bool = True, version: str = "1.0") -> None:
        direct = {"url": "file:///project", "dir_info": {"editable": editable}}
        files = {f"_{name}.pth": "\n".join(lines), f"{name}-{version}.dist-info/direct_url.json": json.dumps(direct)}
        write_package(packages, name, files, version=version)

    return install


def look(pth_files: PthFiles, packages: Path, *plugins: str) -> list[str]:
    """Check what is installed, as each reload does, and return the names of the test's folders on `sys.path`."""
    pth_files.unload_removed()
    environment = Environment(metadata.distributions(path=[str(packages)]))
    pth_files.load_new(environment, plugins)
    return [Path(each).name for each in sys.path if Path(each).is_relative_to(packages.parent)]


def folders(packages: Path, *names: str) -> tuple[str, ...]:
    """Create folders beside site-packages, and return their paths."""
    for name in names:
        (packages.parent / name).mkdir()
    return tuple(str(packages.parent / name) for name in names)


def test_a_folder_is_importable_while_it_is_installed(packages: Path, install: Install) -> None:
    """It is added once, removed with its file, and replaced when the file names another."""
    old, new = folders(packages, "old", "new")
    pth_files = PthFiles()
    install("edited", old)
    for _ in range(2):
        assert look(pth_files, packages, "edited") == ["packages", "old"]
    install("edited", new, version="2.0")
    assert look(pth_files, packages, "edited") == ["packages", "new"]
    remove_package(packages, "edited")
    assert look(pth_files, packages) == ["packages"]


def test_only_files_of_editable_plugins_and_their_needs_are_read(packages: Path, install: Install) -> None:
    """A running host executes no `.pth` file of a copy or of an unneeded distribution; a needed one is read later."""
    one, two, three = folders(packages, "one", "two", "three")
    pth_files = PthFiles()
    install("copied", one, editable=False)
    install("unneeded", two)
    install("unrecorded", three)
    (packages / "unrecorded-1.0.dist-info" / "RECORD").unlink()
    install("zealous", three)
    assert look(pth_files, packages, "copied", "unrecorded", "zealous") == ["packages", "three"]


def test_files_elsewhere_are_ignored(packages: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Python, `.pth` files count only in a site-packages folder that is on `sys.path`."""
    one, _ = folders(packages, "one", "elsewhere")
    for elsewhere in ("getsitepackages", "path"):
        with monkeypatch.context() as patch:
            if elsewhere == "path":
                patch.setattr(sys, "path", [each for each in sys.path if each != str(packages)])
            else:
                patch.setattr(site, "getsitepackages", list)
            pth_files = PthFiles()
            install("edited", one)
            assert "one" not in look(pth_files, packages, "edited")
            remove_package(packages, "edited")


def test_files_present_at_the_start_are_not_read_again(packages: Path, install: Install) -> None:
    """Python has read them already; the host only removes their folders when they are gone."""
    (folder,) = folders(packages, "early")
    install("edited", folder)
    pth_files = PthFiles()
    assert look(pth_files, packages, "edited") == ["packages"]
    sys.path.append(folder)
    remove_package(packages, "edited")
    assert look(pth_files, packages) == ["packages"]


def test_a_folder_stays_while_another_file_names_it(packages: Path, install: Install) -> None:
    """It is removed with the last file that names it."""
    (folder,) = folders(packages, "both")
    pth_files = PthFiles()
    install("one", folder)
    install("two", folder)
    assert look(pth_files, packages, "one", "two") == ["packages", "both"]
    remove_package(packages, "one")
    assert look(pth_files, packages, "two") == ["packages", "both"]
    remove_package(packages, "two")
    assert look(pth_files, packages) == ["packages"]


def test_lines_without_a_folder_remove_nothing(packages: Path, install: Install) -> None:
    """Empty lines, comments and imports name no folder: site-packages stays on `sys.path` without their file."""
    (folder,) = folders(packages, "indented")
    pth_files = PthFiles()
    install("edited", "", "  ", "# packages", "import os", "import\tos", f"{folder}  ")
    assert look(pth_files, packages, "edited") == ["packages", "indented"]
    others = [each for each in sys.path if each != folder]
    remove_package(packages, "edited")
    assert look(pth_files, packages) == ["packages"]
    assert sys.path == others


def test_an_import_finder_is_removed_with_its_file(packages: Path, install: Install) -> None:
    """It is no longer called, and a later one of its name is imported afresh; other finders stay."""
    before = list(sys.meta_path)
    pth_files = PthFiles()
    (packages / "in_place_finder.py").write_text(FINDER)
    install("edited", "import in_place_finder; in_place_finder.install()")
    look(pth_files, packages, "edited")
    assert [each.__module__ for each in sys.meta_path if each not in before] == ["in_place_finder"]
    remove_package(packages, "edited")
    look(pth_files, packages)
    assert sys.meta_path == before
    assert "in_place_finder" not in sys.modules


def test_a_library_that_a_file_imports_stays(packages: Path, install: Install) -> None:
    """Only modules beside the file are removed with it: others use `os`, and a new `sys` would have lost its state."""
    pth_files = PthFiles()
    install("edited", "import os; os.getcwd()", "import sys; sys.path")
    look(pth_files, packages, "edited")
    remove_package(packages, "edited")
    look(pth_files, packages)
    assert (sys.modules.get("os"), sys.modules.get("sys")) == (os, sys)


def test_a_file_of_unknown_encoding_prevents_nothing(packages: Path, install: Install) -> None:
    """A file that Python couldn't read at its start doesn't stop others from being read."""
    (folder,) = folders(packages, "good")
    (packages / "bad.pth").write_bytes(b"\xff\xfe\n")
    pth_files = PthFiles()
    install("edited", folder)
    assert look(pth_files, packages, "edited") == ["packages", "good"]
