"""A host that reloads or starts while `plughost install` runs."""

from __future__ import annotations

import fcntl
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.waiting import wait_until

from plughost._plugins.discovery import wait_for_change
from plughost._runtime.control import send_command

from .test_install import gate, write_slow_project
from .wheels import speaker_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from .environments import Sandbox


def test_a_reload_waits_until_pip_has_ended(sandbox: Sandbox) -> None:
    """Meanwhile a plugin that pip replaces is missing, and is served as before."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "old"))
    wheel = speaker_wheel(sandbox.wheels, "greeter", "2.0", "new")
    with sandbox.serving() as host, ThreadPoolExecutor(1) as pool, ExitStack() as closed:
        wait, mark = closed.enter_context(gate(sandbox.folder))
        write_slow_project(sandbox.folder / "slow", wait)
        with sandbox.running("install", "--yes", wheel, "./slow") as process:
            wait_until(mark.exists)
            info = sandbox.site / "plughost_greeter-2.0.dist-info"
            aside = info.rename(sandbox.site / "~lughost_greeter-2.0.dist-info")  # as pip does
            reloading = pool.submit(send_command, sandbox.folder / "data", "reload")
            assert {host.get("/greeter").status_code for _ in range(100)} == {200}
            aside.rename(info)
            closed.close()
            assert reloading.result()["reused"] == ["greeter", "packages"]
            assert process.wait() == 1, "pip fails, and all is undone"
        assert host.get("/greeter").json()["word"] == "old"


@pytest.mark.parametrize("command", [("lock", "--dry-run"), ("lock", "--check"), ("bundle", "bundle", "--dry-run")])
def test_a_set_that_another_command_changes_is_not_recorded(sandbox: Sandbox, command: tuple[str, ...]) -> None:
    """A lock file or a bundle would lack the plugin that pip replaces at that moment."""
    with (sandbox.python.parents[1] / ".plughost.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "Another command is changing the environment" in sandbox.run(*command, code=1)


@pytest.mark.parametrize(("to_end", "names"), [(False, "plughost-greeter"), (True, "")])
def test_a_start_waits_for_the_whole_command(
    to_end: bool, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start waits while the command holds its lock, a reload only while that names distributions; the log says so."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with (tmp_path / ".plughost.lock").open("w") as lock:
        lock.write(names)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        asked = []

        def is_stopping() -> bool:
            asked.append(True)
            if len(asked) == 3:
                fcntl.flock(lock, fcntl.LOCK_UN)
            return False

        wait_for_change(is_stopping, to_end=to_end)
        assert len(asked) == 3
        assert caplog.text.count("waiting until a command that changes installed packages has ended") == 1


def test_a_reload_waits_neither_for_complete_files_nor_for_a_killed_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reload of the command itself comes while it holds its lock, and a killed one leaves names in the file."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    file = tmp_path / ".plughost.lock"
    asked = []

    def is_stopping() -> bool:
        asked.append(True)
        return len(asked) > 1

    file.write_text("plughost-greeter")
    wait_for_change(is_stopping, to_end=False)
    assert len(asked) == 1
    file.write_text("")
    with file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wait_for_change(is_stopping, to_end=False)
    assert len(asked) == 1
