"""Reloads after package changes: what is imported afresh, restored or removed, and what needs a restart."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.host.packages import InFolder, plugin_entry, remove_package, speaker_source, write_package
from tests.waiting import wait_until

from plughost._api.bounded import Interrupted
from plughost.testing import running_host


def install(folder: Path, name: str, word: str, version: str, *requires: str, head: str = "") -> None:
    """Install a plugin package with a submodule that contains its word."""
    package = f"reloaded_{name}"
    files = {
        f"{package}/__init__.py": "",
        f"{package}/words.py": f"WORD = {word}\n",
        f"{package}/plugin.py": speaker_source(
            "WORD_", f"/{name}", head=f"from {package}.words import WORD as WORD_\n{head}"
        ),
    }
    entry = plugin_entry(name, f"{package}.plugin")
    write_package(folder, f"reloaded-{name}", files, version=version, requires=requires, entry_points=entry)


def test_a_plugin_with_damaged_metadata_is_not_removed(folder: Path) -> None:
    """A reload that finds it no longer is refused, as for a plugin that would fail; without its files it is removed."""
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        client.get("/base")
        path = next(folder.glob("reloaded_base-*.dist-info")) / "entry_points.txt"
        path.unlink()
        (path.parent / "METADATA").unlink()
        report = host.host.reload()
        assert not report.swapped
        assert "reloaded_base-1.0.dist-info is damaged: METADATA is missing" in report.problems[0]
        assert client.get("/base").json() == {"word": "one", "count": 2}
        remove_package(folder, "reloaded-base")
        assert host.host.reload().removed == ("base",)


def test_a_plugin_with_unreadable_entry_points_is_not_removed(folder: Path) -> None:
    """Unless it may go, the reload is refused, since their file is there. Root can open any file, but no folder."""
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host:
        points = next(folder.glob("reloaded_base-*.dist-info")) / "entry_points.txt"
        points.unlink()
        points.mkdir()
        report = host.host.reload()
        assert not report.swapped
        assert "reloaded_base-1.0.dist-info is damaged: entry_points.txt can't be read: Is a" in report.problems[0]
        assert host.host.reload(["base"]).removed == ("base",)


def test_a_removed_part_of_a_namespace_package_leaves_the_others(folder: Path) -> None:
    """A plugin in the same namespace package still finds its own modules by their full names."""
    for name in ("left", "right"):
        source = speaker_source("1", f"/{name}").replace('"word": WORD', f'"word": package().{name}.words.WORD')
        lazy = f"def package():\n    import reloaded_parts.{name}.words\n    return reloaded_parts\n{source}"
        files = {f"reloaded_parts/{name}/plugin.py": lazy, f"reloaded_parts/{name}/words.py": f"WORD = {name!r}"}
        entry = plugin_entry(name, f"reloaded_parts.{name}.plugin")
        write_package(folder, f"reloaded-{name}", files, entry_points=entry)
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        assert client.get("/left").json()["word"] == "left"
        remove_package(folder, "reloaded-left")
        assert host.host.reload().removed == ("left",)
        assert client.get("/right").json() == {"word": "right", "count": 1}


def test_an_upgrade_may_rename_its_plugin(folder: Path) -> None:
    """The old name is removed, and the new one added, in one reload."""
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host:
        info = next(folder.glob("reloaded_base-*.dist-info"))
        points = info / "entry_points.txt"
        points.write_text(points.read_text().replace("base =", "basis ="))
        report = host.host.reload()
        assert (report.removed, report.added) == (("base",), ("basis",))


def test_a_real_package_is_imported_afresh_with_its_dependents(folder: Path) -> None:
    """An upgraded package serves its new submodules, also to its dependents; unrelated plugins keep their memory."""
    install(folder, "base", "'one'", "1.0")
    head = "from reloaded_base.words import WORD as BASE\n"
    install(folder, "top", "'unused'", "1.0", "reloaded-base", head=f"{head}WORD_ = BASE\n")
    install(folder, "other", "'other'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        assert client.get("/top").json() == {"word": "one", "count": 1}
        client.get("/other")
        install(folder, "base", "'two!'", "2.0")
        report = host.host.reload()
        assert (report.changed, report.reused) == (("base", "top"), ("other",))
        assert client.get("/base").json() == {"word": "two!", "count": 1}
        assert client.get("/top").json() == {"word": "two!", "count": 1}
        assert client.get("/other").json() == {"word": "other", "count": 2}


def test_a_failed_upgrade_restores_the_old_modules(folder: Path) -> None:
    """If the new version can't be imported, `sys.modules` has the modules of the version that still serves."""
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        before = sys.modules["reloaded_base.words"]
        install(folder, "base", "1 / 0", "2.0")
        report = host.host.reload()
        assert (report.swapped, "ZeroDivisionError" in report.failed[0][1]) == (False, True)
        assert sys.modules["reloaded_base.words"] is before
        assert client.get("/base").json()["word"] == "one"
        install(folder, "base", "'three'", "3.0")
        assert host.host.reload().ok
        assert client.get("/base").json()["word"] == "three"


def test_a_failed_upgrade_leaves_no_new_module(folder: Path) -> None:
    """Modules only of the refused version are not in `sys.modules`, where the next version would find them."""
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host:
        install(folder, "base", "__import__('reloaded_base.fresh') and 1 / 0", "2.0")
        (folder / "reloaded_base" / "fresh.py").write_text("")
        with (folder / "reloaded_base-2.0.dist-info" / "RECORD").open("a") as record:
            record.write("reloaded_base/fresh.py,,\n")
        assert not host.host.reload().swapped
        assert "reloaded_base.fresh" not in sys.modules


def test_modules_of_a_refused_reload_are_imported_afresh(folder: Path) -> None:
    """A new plugin in a refused reload is later served from its files as they are then."""
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        install(folder, "base", "1 / 0", "2.0")
        install(folder, "other", "'early'", "1.0")
        assert not host.host.reload().swapped
        install(folder, "base", "'three'", "3.0")
        install(folder, "other", "'late'", "2.0")
        assert host.host.reload().added == ("other",)
        assert client.get("/other").json()["word"] == "late"


def test_modules_of_an_inspected_plugin_are_imported_afresh(folder: Path) -> None:
    """A disabled plugin that was inspected, such as for a purge, serves its present files once it is enabled."""
    install(folder, "base", "'one'", "1.0")
    install(folder, "other", "'early'", "1.0")
    with running_host(distributions=InFolder(folder), settings={"disabled": ["other"]}) as host:
        state = host.host
        state.preview(state.settings.with_all_enabled())
        install(folder, "other", "'late'", "2.0")
        assert state.view.control.switch("other", enabled=True).added == ("other",)
        with host.client() as client:
            assert client.get("/other").json()["word"] == "late"


def test_no_reload_runs_while_a_plugin_is_inspected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would serve the inspected modules as those of a version that was installed meanwhile."""
    were_locked: list[bool] = []
    install(folder, "base", "__import__('sys').note_lock()", "1.0")
    with running_host(distributions=InFolder(folder), settings={"disabled": ["base"]}) as host:
        state = host.host
        monkeypatch.setattr(sys, "note_lock", lambda: were_locked.append(state._change_lock.locked()), raising=False)
        state.preview(state.settings.with_all_enabled())
    assert were_locked == [True]


def test_a_stop_ends_the_inspection_of_a_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop would wait for it, as for a reload."""
    inspected, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        inspected.set()
        go_on.wait()

    install(folder, "base", "__import__('sys').hang()", "1.0")
    with (
        running_host(distributions=InFolder(folder), settings={"disabled": ["base"]}) as host,
        ThreadPoolExecutor() as pool,
    ):
        monkeypatch.setattr(sys, "hang", hang, raising=False)
        preview = pool.submit(host.host.preview, host.host.settings.with_all_enabled())
        assert inspected.wait(30)
        host.host.lifecycle.stop_requests.add()
        with pytest.raises(Interrupted):
            preview.result(60)
        go_on.set()


def test_an_import_that_hangs_is_named_when_the_next_one_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python imports a module only once at a time, so the failure says that a corrected version needs a restart."""
    go_on = threading.Event()
    monkeypatch.setattr(sys, "go_on", go_on, raising=False)
    with running_host(distributions=InFolder(folder), settings={"hook_timeout": 0.5}) as host:
        before = {*threading.enumerate()}
        install(folder, "base", "__import__('sys').go_on.wait()", "1.0")
        assert "Mend the plugin, or raise" in host.host.reload().failed[0][1]
        install(folder, "base", "'mended'", "2.0")
        message = host.host.reload().failed[0][1]
        go_on.set()
        for thread in {*threading.enumerate()} - before:  # the imports would end in the middle of another test
            if thread.name == "base:import":
                thread.join()
    assert "waited for an earlier import, which has not returned either. Mend the plugin, then restart" in message


def test_an_installation_just_after_the_folder_was_read_is_found(folder: Path) -> None:
    """A reload notices it even if the folder's modification time stays the same."""
    install(folder, "base", "'one'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        state = folder.stat()
        install(folder, "other", "'other'", "1.0")
        os.utime(folder, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert host.host.reload().added == ("other",)
        assert client.get("/other").json()["word"] == "other"


def test_an_uninstalled_package_is_removed(folder: Path) -> None:
    """It leaves no routes and no modules, and can be installed again in another version."""
    install(folder, "base", "'one'", "1.0")
    install(folder, "other", "'other'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        remove_package(folder, "reloaded-base")
        assert host.host.reload().removed == ("base",)
        assert "reloaded_base.plugin" not in sys.modules
        assert client.get("/base").status_code == 404
        install(folder, "base", "'again'", "2.0")
        assert host.host.reload().added == ("base",)
        assert client.get("/base").json()["word"] == "again"


@pytest.mark.parametrize(("before", "after"), [("core.so", "core.so"), ("core.py", "core.so"), ("core.so", "core.py")])
def test_compiled_modules_need_a_restart(folder: Path, before: str, after: str) -> None:
    """An upgrade from or to a package with compiled modules changes nothing and says that a restart is needed."""
    write_package(folder, "reloaded-lib", {f"reloaded_lib/{before}": ""})
    install(folder, "base", "'one'", "1.0", "reloaded-lib")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        write_package(folder, "reloaded-lib", {f"reloaded_lib/{after}": ""}, version="2.0")
        report = host.host.reload()
        assert (report.swapped, report.ok) == (False, False)
        why = "reloaded-lib changed from 1.0 to 2.0 on disk, and it brings compiled modules"
        assert report.restart_needed == (why,)
        assert client.get("/base").json()["word"] == "one"


def test_compiled_modules_that_return_need_a_restart(folder: Path) -> None:
    """Python still has the old ones, which a new version must not use; removal alone needs no restart."""
    write_package(folder, "reloaded-lib", {"reloaded_lib/core.so": ""})
    install(folder, "base", "'one'", "1.0", "reloaded-lib")
    with running_host(distributions=InFolder(folder)) as host:
        remove_package(folder, "reloaded-base")
        assert host.host.reload().ok
        write_package(folder, "reloaded-lib", {"reloaded_lib/core.so": ""}, version="2.0")
        assert host.host.reload().ok
        install(folder, "base", "'one'", "1.0", "reloaded-lib")
        why = "reloaded-lib changed from 1.0 to 2.0 on disk, and it brings compiled modules"
        assert host.host.reload().restart_needed == (why,)


def test_a_requirement_of_the_host_needs_a_restart(folder: Path) -> None:
    """An upgrade of one of the host's own requirements changes nothing and says that a restart is needed."""
    write_package(folder, "plughost", {}, requires=["reloaded-lib"])
    write_package(folder, "reloaded-lib", {"reloaded_lib/core.py": ""})
    install(folder, "base", "'one'", "1.0", "reloaded-lib")
    with running_host(distributions=InFolder(folder)) as host:
        write_package(folder, "reloaded-lib", {"reloaded_lib/core.py": ""}, version="2.0")
        why = "reloaded-lib changed from 1.0 to 2.0 on disk, and the host itself runs on it"
        assert host.host.reload().restart_needed == (why,)


def test_modules_never_imported_need_no_restart(folder: Path) -> None:
    """Compiled modules of disabled or incomplete plugins may change, since they were never imported."""
    for lib in ("reloaded-lib", "reloaded-other"):
        write_package(folder, lib, {f"{lib.replace('-', '_')}/core.so": ""})
    install(folder, "base", "'one'", "1.0", "reloaded-lib")
    install(folder, "more", "'two'", "1.0", "reloaded-other", "reloaded-missing")
    with running_host(distributions=InFolder(folder), settings={"disabled": ["base"]}) as host:
        for lib in ("reloaded-lib", "reloaded-other"):
            write_package(folder, lib, {f"{lib.replace('-', '_')}/core.so": ""}, version="2.0")
        assert host.host.reload().restart_needed == ()


def test_reloads_leave_nothing_behind(folder: Path) -> None:
    """After twenty upgrades no old resource is alive, and the numbers of threads and open files haven't grown."""
    install(folder, "base", "'0'", "1.0")
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        client.get("/base")
        alive, descriptors, threads = [], len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
        for number in range(20):
            alive.append(weakref.ref(sys.modules["reloaded_base.plugin"].Says))
            install(folder, "base", f"'{number}'", f"1.{number + 1}")
            assert host.host.reload().ok
            assert client.get("/base").json() == {"word": str(number), "count": 1}
        gc.collect()
        assert [ref for ref in alive if ref() is not None] == []
        # A file that another thread opens for a moment is no leak, and an earlier test's may have been counted before.
        wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= descriptors)
        wait_until(lambda: threading.active_count() <= threads)


def test_kept_records_of_requests_keep_no_replaced_code(folder: Path) -> None:
    """An observer may keep all records, and an upgrade still frees the middleware that the requests went through."""
    head = """from plughost import Middleware

class Passes:
    def process_resource(self, req, resp, resource, params):
        pass
"""
    added = """

@hookimpl
def register_middleware(context):
    return [Middleware(name="passes", component=Passes())]
"""
    watcher = """from plughost import Observer, hookimpl

KEPT = []


@hookimpl
def register_observers(context):
    return [Observer(name="all", observe=KEPT.extend)]
"""
    files = {"reloaded_watcher.py": watcher}
    write_package(folder, "reloaded-watcher", files, entry_points=plugin_entry("watcher", "reloaded_watcher"))
    files = {"reloaded_base.py": speaker_source("1", "/base", head=head) + added}
    entry = plugin_entry("base", "reloaded_base")
    write_package(folder, "reloaded-base", files, entry_points=entry)
    with running_host(distributions=InFolder(folder)) as host, host.client() as client:
        client.get("/base")
        replaced = weakref.ref(sys.modules["reloaded_base"].Passes)
        write_package(folder, "reloaded-base", files, version="2.0", entry_points=entry)
        assert host.host.reload().changed == ("base",)
        gc.collect()
        assert [(each.plugin, each.route) for each in sys.modules["reloaded_watcher"].KEPT] == [("base", "/base")]
        assert replaced() is None
