"""Edited code is imported afresh, with all that imports it; in development, single files are plugins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.host.packages import InFolder, plugin_entry, speaker_source, write_package
from tests.host.test_reload_packages import install
from tests.waiting import wait_until

from plughost._logging import silent_logger
from plughost._runtime.host import Host
from plughost._runtime.source_watcher import SourceWatcher
from plughost._settings.sources import read_settings
from plughost.testing import running_host

if TYPE_CHECKING:
    from plughost import ReloadReport

_MISPLACED = """
from plughost import RouteGroup, hookimpl
@hookimpl
def register_routes(context): return [RouteGroup(prefix="x", routes=())]
"""
_CLAIMED_TWICE = _MISPLACED.replace('[RouteGroup(prefix="x", routes=())]', '[RouteGroup(prefix="/x", routes=())] * 2')
_UNADVISED = """
from plughost import PluginError, hookimpl
@hookimpl
def register_routes(context): raise PluginError("it can't")
"""


@pytest.mark.parametrize(
    "statement",
    [
        "from reloaded_base.words import WORD as BASE",
        "import reloaded_base.words\nBASE = reloaded_base.words.WORD",
        "import importlib\nwords = importlib.import_module('reloaded_base.words')\nBASE = words.WORD",
        "def base():\n    from reloaded_base.words import WORD\n    return WORD\nBASE = base()",
        "def base():\n    import reloaded_base.words as words\n    return words.WORD\nBASE = base()",
    ],
)
def test_importers_of_changed_code_are_imported_afresh(folder: Path, statement: str) -> None:
    """This needs no declared requirement, so no module is loaded twice; other plugins keep their memory."""
    install(folder, "base", "'one'", "1.0")
    install(folder, "top", "'unused'", "1.0", head=f"{statement}\nWORD_ = BASE\n")
    install(folder, "other", "'other'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        assert client.get("/top").json()["word"] == "one"
        client.get("/other")
        install(folder, "base", "'two!'", "2.0")
        assert host.host.reload().changed == ("base", "top")
        assert client.get("/top").json()["word"] == "two!"
        assert client.get("/other").json()["count"] == 2


@pytest.mark.parametrize(
    "statement",
    [
        "from ...base.words import WORD",
        "def word():\n    from ...base import words\n    return words.WORD\nWORD = word()",
        "def word():\n    from ... import base\n    return base.words.WORD\nWORD = word()",
    ],
)
def test_relative_importers_of_changed_code_are_imported_afresh(
    folder: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Distributions in separate folders that share a namespace package import each other this way."""
    beside = folder / "beside"
    beside.mkdir()
    monkeypatch.syspath_prepend(str(beside))

    def install_base(word: str) -> None:
        sources = {"words": f"WORD = {word}", "__init__": "from . import words", "plugin": speaker_source("1", "/base")}
        files = {f"reloaded_space/base/{name}.py": source for name, source in sources.items()}
        entry = plugin_entry("base", "reloaded_space.base.plugin")
        write_package(folder, "reloaded-base", files, version=word, entry_points=entry)

    install_base("1")
    top = {"reloaded_space/top/deep/__init__.py": speaker_source("WORD", "/top", head=statement)}
    write_package(beside, "reloaded-top", top, entry_points=plugin_entry("top", "reloaded_space.top.deep"))
    with running_host(distributions=InFolder(folder, beside)) as host, host.client() as client:
        assert client.get("/top").json()["word"] == 1
        install_base("22")
        assert host.host.reload().changed == ("base", "top")
        assert client.get("/top").json()["word"] == 22


def test_a_plugin_that_imports_no_changed_code_keeps_its_memory(folder: Path) -> None:
    """This holds whatever else it requires, and even if one of its modules has no readable file."""
    write_package(folder, "reloaded-lib", {"reloaded_lib.py": ""})
    space = {"reloaded_apart/parts/plugin.py": speaker_source("1", "/other")}
    entry = plugin_entry("other", "reloaded_apart.parts.plugin")
    write_package(folder, "reloaded-other", space, requires=["reloaded-lib"], entry_points=entry)
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host:
        install(folder, "base", "'two!'", "2.0")
        report = host.host.reload()
        assert (report.changed, report.reused) == (("base",), ("other",))


@pytest.mark.parametrize("rubbish", ["this is no Python: reloaded_base", "reloaded_base\0", None])
def test_a_module_without_readable_source_prevents_no_reload(folder: Path, rubbish: str | None) -> None:
    """Source that can't be read or parsed counts as importing nothing that changed."""
    install(folder, "base", "'one'", "1.0")
    install(folder, "other", "'other'", "1.0")
    with running_host(distributions=InFolder(folder)) as host:
        source = folder / "reloaded_other" / "words.py"
        source.unlink() if rubbish is None else source.write_text(rubbish)
        install(folder, "base", "'two!'", "2.0")
        report = host.host.reload()
        assert (report.changed, report.reused) == (("base",), ("other",))


def test_an_edit_of_the_same_size_in_the_same_second_takes_effect(folder: Path) -> None:
    """Byte code records its source's time in whole seconds, and the old byte code is not used for the new source."""
    plugins = folder / "plugins"
    plugins.mkdir()
    file = plugins / "quick.py"
    with_one = speaker_source("1", "/quick")
    file.write_text(with_one)
    with running_host(settings={"plugins_dir": str(plugins)}, distributions=[]) as host:
        state = file.stat()
        file.write_text(with_one.replace("WORD = 1", "WORD = 2"))
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert host.host.reload().changed == ("quick",)
        with host.client() as client:
            assert client.get("/quick").json()["word"] == 2


def test_files_of_a_folder_are_plugins_in_development_only(folder: Path) -> None:
    """Adding or removing a file adds or removes its plugin; a name with a leading underscore is ignored."""
    plugins = folder / "plugins"
    plugins.mkdir()
    (plugins / "say_one.py").write_text(speaker_source("1", "/one"))
    (plugins / "_helper.py").write_text("raise RuntimeError")
    settings = {"plugins_dir": str(plugins)}
    with running_host(settings=settings, distributions=[]) as host, host.client() as client:
        assert client.get("/one").json() == {"word": 1, "count": 1}
        (plugins / "say-two.py").write_text(speaker_source("2", "/two"))
        report = host.host.reload()
        assert (report.added, report.reused) == (("say-two",), ("say-one",))
        (plugins / "say-two.py").unlink()
        assert host.host.reload().removed == ("say-two",)
        assert client.get("/one").json() == {"word": 1, "count": 2}
    with running_host(settings=settings, distributions=[], dev=False) as host:
        assert host.host.view.plugins == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (b"with-hyphens.py", "No module named 'missing_library'"),
        (b"Some words.py", "the entry point's name 'Some words' must be lower-case words joined by hyphens"),
        (b"name\xff.py", r"the entry point's name 'name\\udcff' must be lower-case words joined by hyphens"),
    ],
)
def test_a_faulty_file_fails_with_the_reason(folder: Path, name: bytes, message: str) -> None:
    """The reason blames the file's content or its name, and other plugins serve."""
    plugins = folder / "plugins"
    plugins.mkdir()
    (plugins / "good.py").write_text(speaker_source("1", "/good"))
    (plugins / os.fsdecode(name)).write_text("import missing_library")
    with running_host(settings={"plugins_dir": str(plugins)}, distributions=[]) as host:
        states = {each.name: each.reason or each.state for each in host.host.view.plugins}
    assert states.pop("good") == "active"
    assert [message in each for each in states.values()] == [True]


@pytest.mark.parametrize("source", ["def x(:", "raise SystemExit", "1 / 0", _MISPLACED, _CLAIMED_TWICE, _UNADVISED])
def test_the_advice_for_a_faulty_file_is_to_correct_it(folder: Path, source: str) -> None:
    """A single file has no other author to whom its fault could be reported."""
    (folder / "faulty.py").write_text(source)
    with running_host(settings={"plugins_dir": str(folder)}, distributions=[]) as host:
        (faulty,) = host.host.view.plugins
    assert f"end {folder / 'faulty.py'}, which is your own." in (faulty.reason or "")
    assert "author" not in (faulty.reason or "")
    assert "plugins --why" not in (faulty.reason or ""), "which looks at no file without --dev"


def test_a_file_with_the_name_of_an_installed_plugin_is_reported(folder: Path) -> None:
    """One of the two serves, and the other gives the reason, as for two distributions."""
    plugins = folder / "plugins"
    plugins.mkdir()
    (plugins / "base.py").write_text(speaker_source("1", "/file"))
    write_package(
        folder, "a-base", {"a_base.py": speaker_source("2", "/a")}, entry_points=plugin_entry("base", "a_base")
    )
    settings = {"plugins_dir": str(plugins)}
    with running_host(settings=settings, distributions=InFolder(folder)) as host:
        used, other = host.host.view.plugins
    assert (used.distribution, used.state, other.state) == ("a-base", "active", "failed")
    assert "the distribution a-base already brings a plugin of this name" in (other.reason or "")


@pytest.mark.parametrize(
    ("folder", "address", "message"),
    [("nowhere", "127.0.0.1", "there is no folder"), (".", "0.0.0.0", "not served while others can reach 0.0.0.0")],
)
def test_ignored_single_files_are_reported(folder: str, address: str, message: str, tmp_path: Path) -> None:
    """A missing folder is a warning, and so is a folder whose files others can change."""
    settings = tmp_path / "plughost.toml"
    settings.write_text(f'plugins_dir = "{folder}"\naddress = "{address}"\n')
    generation = Host(read_settings(settings), dev=True, logger=silent_logger(), distributions=list).dry_run()
    (warning,) = [each for each in generation.warnings if each.startswith("plugins_dir: ")]
    assert message in warning


def test_a_save_whose_report_fails_is_not_loaded_again(folder: Path) -> None:
    """It counts as loaded when it is reported: otherwise a full disk behind the output made reloads without end."""
    is_loaded: list[bool] = []

    def fail(report: ReloadReport) -> None:
        is_loaded.append(watcher._scan() == watcher._baseline)
        raise OSError("No space left on device")

    with running_host(settings={"plugins_dir": str(folder)}, distributions=[]) as host:
        watcher = SourceWatcher(host.host, fail)
        with watcher:
            (folder / "said.py").write_text(speaker_source("1", "/said"))
            wait_until(lambda: is_loaded)
    assert is_loaded[0]
