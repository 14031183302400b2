"""`plughost serve` with plugins that hang: it names them, and ends in time."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.test_serve import events
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.cli.conftest import Line
    from tests.cli.test_serve import Serve

HANGING = """
from threading import Event
from plughost import hookimpl


@hookimpl
def {hook}(context):
    Event().wait()
"""

BUSY = (
    HANGING.format(hook="started").replace("Event().wait()", "pass")
    + """
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor(1, "left").submit(Event().wait)
"""
)

FORKING = """
import os, pathlib, threading
from multiprocessing import get_context
from plughost import hookimpl


@hookimpl
def started(context):
    get_context("fork").Process(target=wait, daemon=True).start()


def wait():
    os.closerange(1, 3)
    pathlib.Path("forked").touch()
    while not pathlib.Path("go-on").exists():
        threading.Event().wait(0.01)
"""


@pytest.mark.parametrize("hook", ["started", "stopping"])
def test_a_hook_that_hangs_changes_the_exit_code(line: Line, serving: Serve, hook: str) -> None:
    """The host serves and stops in time; it names the plugin and the hook, and its exit code is 1."""
    line.configure("hook_timeout = 2")
    line.install("stuck", HANGING.format(hook=hook))
    code, errors = serving().end(signal.SIGTERM)
    trouble = next(event for event in events(errors) if event["event"] == "trouble")
    assert trouble["plugin"] == "stuck (cli-stuck 1.0)"
    assert f"{hook}: it did not return within 2 s" in trouble["reason"]
    assert code == 1


def test_a_plugin_cannot_keep_the_process(line: Line, serving: Serve) -> None:
    """Python waits for a thread pool that the plugin left at work; the host ends after `hook_timeout` and names it."""
    line.configure("hook_timeout = 2")
    pool = "ThreadPoolExecutor(1, 'left').submit(Event().wait)"
    source = HANGING.format(hook="started").replace("Event().wait()", pool)
    line.install("stuck", f"from concurrent.futures import ThreadPoolExecutor\n{source}")
    code, errors = serving().end(signal.SIGTERM)
    assert "Threads: left_0." in next(event for event in events(errors) if event["event"] == "cut off")["reason"]
    assert code == 1


def test_a_forked_child_ends_with_the_host(line: Line, serving: Serve) -> None:
    """It takes SIGTERM as any process does, so `multiprocessing` can end it."""
    line.configure("hook_timeout = 2")
    line.install("parent", FORKING)
    code, errors = serving().end(signal.SIGTERM)
    (line.folder / "go-on").touch()
    assert "cut off" not in [event["event"] for event in events(errors)]
    assert code == 0


def test_a_forked_child_does_not_hold_the_data_folder(line: Line, serving: Serve) -> None:
    """A host that was killed leaves it behind; the next one starts all the same."""
    line.install("parent", FORKING)
    host = serving()
    wait_until((line.folder / "forked").exists)
    host.end(signal.SIGKILL)
    try:
        assert serving().end(signal.SIGTERM)[0] == 0
    finally:
        (line.folder / "go-on").touch()


def test_a_plugin_cannot_keep_the_process_of_a_refused_start(line: Line) -> None:
    """A service manager would wait for it for ever, and start no other."""
    line.configure("hook_timeout = 2\nrequired = ['missing']")
    line.install("stuck", BUSY)
    process = line.start("serve")
    _, errors = process.communicate(timeout=60)
    assert [event["event"] for event in events(errors)][-2:] == ["refused to start", "cut off"]
    assert process.returncode == 1


def test_a_plugin_cannot_keep_a_command(line: Line) -> None:
    """`check` prints its result, ends after `hook_timeout`, and names the threads; a script would wait for ever."""
    line.configure("hook_timeout = 2")
    line.install("stuck", BUSY)
    process = line.start("check")
    output, errors = process.communicate(timeout=60)
    assert output == "1 plugin, all well.\n"
    assert "Threads: left_0." in errors
    assert process.returncode == 1


def test_a_hook_that_hangs_is_in_the_report_of_a_reload(line: Line, serving: Serve) -> None:
    """The reload is done, and names the plugin that doesn't finish its start; the exit code is 1."""
    line.configure("hook_timeout = 2")
    serving()
    line.install("stuck", HANGING.format(hook="started"))
    process = subprocess.run(
        [sys.executable, "-c", "from plughost._cli.main import main; main()", "reload"],
        cwd=line.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "trouble" in process.stdout
    assert "started: it did not return within 2 s" in process.stdout
    assert process.returncode == 1
