"""A process without standard streams, or with one that takes no more."""

from __future__ import annotations

import json
import resource
import signal
from typing import TYPE_CHECKING

from tests.waiting import wait_until

from plughost import NotRunning
from plughost._runtime.control import send_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Line
    from tests.cli.test_serve import Serve


def test_without_standard_streams_it_serves(line: Line) -> None:
    """A host that is started with closed standard streams serves, and ends well."""
    line.install("good")
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    process = line.start("serve", "--dev", under=closed, stdout=None, stderr=None)
    wait_until(lambda: _phase(line.folder / "plughost-data") == "serving" or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_line_that_does_not_fit_spoils_no_other(line: Line, serving: Serve) -> None:
    """A full disk takes a part of a line; once it has room again, the next line begins on its own."""
    log = line.folder / "log"
    with log.open("ab") as file:
        host = serving(stderr=file)
    wait_until(lambda: '"started"' in log.read_text())
    limits = resource.prlimit(host.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(host.process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 20, limits[1]))
    send_command(line.folder / "plughost-data", "drain")
    resource.prlimit(host.process.pid, resource.RLIMIT_FSIZE, limits)
    assert host.end(signal.SIGTERM)[0] == 0
    torn, *following = log.read_text().partition('"started"')[2].splitlines()[1:]
    assert len(torn) == 20
    assert [json.loads(each)["event"] for each in following] == ["stopping", "stopped"]


def _phase(data: Path) -> str | None:
    try:
        return str(send_command(data, "status")["phase"])
    except NotRunning:
        return None
