"""`plughost restart` when something goes wrong, or is asked for twice."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.host.plugins import is_running
from tests.waiting import wait_until

from plughost import NotRunning
from plughost._runtime.control import send_command

from .wheels import build_wheel, speaker_wheel

if TYPE_CHECKING:
    from .environments import Sandbox

_SLOW = """
import threading
from pathlib import Path

while Path("gate").exists():
    Path("importing").touch()
    threading.Event().wait(0.01)
"""


@pytest.fixture
def sandbox(sandbox: Sandbox) -> Sandbox:
    """An environment with a plugin that serves, and one that is imported only once there is no file `gate`."""
    slow = build_wheel(sandbox.wheels, "plughost-slow", "1.0", {"slow.py": _SLOW}, plugins={"slow": "slow"})
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"), slow)
    return sandbox


def test_a_restart_during_another_one_is_refused(sandbox: Sandbox) -> None:
    """The command says why, and the first restart goes on."""
    with sandbox.serving() as host, ThreadPoolExecutor() as pool:
        (sandbox.folder / "gate").touch()
        restarting = pool.submit(host.restart)
        wait_until((sandbox.folder / "importing").exists)
        assert "a restart is under way already" in sandbox.run("restart", code=1)
        (sandbox.folder / "gate").unlink()
        assert restarting.result() == host.status()["pid"]


def test_a_next_process_serves_even_if_the_old_one_is_killed(sandbox: Sandbox) -> None:
    """It has the ports and the data folder, and needs nobody to report to."""
    with suppress(NotRunning), sandbox.serving() as host, ThreadPoolExecutor() as pool:
        url = host.url()
        (sandbox.folder / "gate").touch()
        restart = pool.submit(sandbox.run, "restart", code=1)
        wait_until((sandbox.folder / "importing").exists)
        host.process.kill()
        assert "stopped before it answered" in restart.result()
        (sandbox.folder / "gate").unlink()
        wait_until(lambda: is_running(sandbox.folder / "data"))
        assert (host.url(), host.get("/greeter").status_code) == (url, 200)
        os.kill(host.status()["pid"], signal.SIGTERM)
        wait_until(lambda: not is_running(sandbox.folder / "data"))


def test_a_process_that_cannot_be_started_replaces_nothing(sandbox: Sandbox) -> None:
    """The answer says why, such as that there is no Python any more, and the old process continues."""
    with sandbox.serving() as host:
        sandbox.python.unlink()
        answer = send_command(sandbox.folder / "data", "restart")
        assert "the next process can't be started" in answer["reason"]
        assert str(sandbox.python) in answer["reason"]
        assert host.get("/greeter").status_code == 200
