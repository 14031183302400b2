"""pip as a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plughost import CommandError
from plughost_packages import pip, planning
from plughost_packages.keeping import keeping
from plughost_packages.settings import Settings


def _children() -> set[str]:
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def test_an_interrupted_command_leaves_no_pip_behind() -> None:
    """Otherwise pip would continue while its changes are undone."""
    before = _children()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pip.run(["list", "--verbose"], interrupted)
    assert _children() <= before


def test_the_password_of_an_index_is_no_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of a machine can list the arguments of processes."""
    arguments: list[str] = []

    class Recorded(subprocess.Popen[str]):
        def __init__(self, command: list[str], **options: Any) -> None:
            arguments.extend(command)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    pip.run(["list", "--index-url", "https://user:sesame@index.invalid/simple"], lambda _: None)
    assert arguments
    assert "sesame" not in " ".join(arguments)


def test_a_fault_in_pip_is_named() -> None:
    """Its traceback tells the reason, which pip's error line does not."""
    with pytest.raises(pip.PipError, match="IsADirectoryError"):
        pip.run(["freeze", "--requirement", "/"], lambda _: None)


def test_a_pip_that_was_killed_is_no_failure_of_its_own(tmp_path: Path) -> None:
    """The error names the signal: the lines before it, such as "Successfully installed", tell no reason."""
    before, fifo = _children(), tmp_path / "requirements"
    os.mkfifo(fifo)

    def kill() -> None:
        with fifo.open("w"):  # pip reads it
            for pid in _children() - before:
                os.kill(int(pid), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(pip.PipError, match=r"^pip freeze was ended by the signal 9 \(Killed\)"):
        pip.run(["freeze", "--requirement", str(fifo)], lambda _: None)
    killer.join()


def test_a_quiet_pip_has_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `quiet` in pip's own configuration doesn't hide the rest of it."""
    monkeypatch.setenv("PIP_QUIET", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.invalid/simple")
    assert pip.configures("index-url")


def test_a_file_that_an_index_announced_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer versions of pip read only the metadata of files for their report, and don't check the files themselves."""
    wheel = tmp_path / "plughost_greeter-1.0-py3-none-any.whl"
    wheel.write_bytes(b"replaced")
    item = {
        "metadata": {"name": "plughost-greeter", "version": "1.0"},
        "download_info": {"url": wheel.as_uri(), "archive_info": {"hashes": {"sha256": "0" * 64}}},
        "requested": True,
    }
    monkeypatch.setattr(pip, "report", lambda *_: [item])
    host = SimpleNamespace(data_dir=tmp_path / "data", why_not_allowed=lambda *_: None)
    context: Any = SimpleNamespace(settings=Settings(), host=host)
    with (
        pytest.raises(CommandError, match="was announced: it was replaced"),
        planning.plan_install(context, ["plughost-greeter"], [], print, upgrade=False),
    ):
        pass


def test_another_error_is_not_taken_for_the_lock() -> None:
    """A terminal that blocks raises the same error as a lock that is held."""
    with pytest.raises(BlockingIOError), keeping(set()):
        raise BlockingIOError
