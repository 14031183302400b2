"""The tests' own environments: the messages of failures in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plughost import NotRunning

from .environments import PATIENCE
from .wheels import broken, speaker

if TYPE_CHECKING:
    from .environments import Sandbox, Served


def reload_and_kill(sandbox: Sandbox, host: Served) -> None:
    """Let a host log a reload, kill it, and wait until it has ended."""
    sandbox.run("reload")
    host.process.kill()
    host.process.wait(PATIENCE)


def test_a_host_that_does_not_start_says_why(sandbox: Sandbox) -> None:
    """If the host refuses to start, the test's failure has the end of the host's log."""
    sandbox.put(broken(sandbox.wheels, "broken", "1.0"))
    with pytest.raises(AssertionError, match="did not start") as raised, sandbox.serving("--strict"):
        pass
    assert "this version is broken" in raised.value.__notes__[0]


def test_a_host_that_ends_badly_says_what_it_logged(sandbox: Sandbox) -> None:
    """If the host was killed, the test's failure has the end of the host's log."""
    sandbox.put(speaker(sandbox.wheels, "good", "1.0", "word"))
    with pytest.raises(NotRunning) as raised, sandbox.serving() as host:
        reload_and_kill(sandbox, host)
    assert '"event":"reload"' in raised.value.__notes__[0]
