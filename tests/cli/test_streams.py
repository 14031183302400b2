"""A process without standard streams."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.waiting import wait_until

from plughost import NotRunning
from plughost._runtime.control import send_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Line


def test_without_standard_streams_it_serves(line: Line) -> None:
    """A host that is started with closed standard streams serves, and ends well."""
    line.install("good")
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    process = line.start("serve", "--dev", under=closed, stdout=None, stderr=None)
    wait_until(lambda: _phase(line.folder / "plughost-data") == "serving" or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def _phase(data: Path) -> str | None:
    try:
        return str(send_command(data, "status")["phase"])
    except NotRunning:
        return None
