"""A process without standard streams, or with one that takes no more."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.waiting import wait_until

from plughost import NotRunning
from plughost._runtime.control import send_command

if TYPE_CHECKING:
    from tests.cli.conftest import Line
    from tests.cli.test_serve import Serve

FULL: Final = Path("/dev/full")


def test_without_standard_streams_it_serves(line: Line) -> None:
    """A host that is started with closed standard streams serves, and ends well."""
    line.install("good")
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    process = line.start("serve", "--dev", under=closed, stdout=None, stderr=None)
    wait_until(lambda: _phase(line.folder / "plughost-data") == "serving" or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("buffered", ["", "1"], ids=["unbuffered", "buffered"])
@pytest.mark.parametrize("command", ["serve --help", "plugins", "settings", "plugins --json"])
def test_output_that_has_no_room_is_told_in_one_line(line: Line, command: str, buffered: str) -> None:
    """On a full disk, a command says that it can't write its output, and fails."""
    environment = os.environ | {"PYTHONPATH": str(line.packages), "PYTHONUNBUFFERED": "" if buffered else "1"}
    with FULL.open("wb") as full:
        process = line.start(*command.split(), stdout=full, env=environment)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.splitlines()) == (
        1,
        ["Error: The command can't write its output, or a file: No space left on device."],
    )


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


@pytest.mark.parametrize("closing", ["sys.{}.close()", "io.TextIOWrapper(sys.{}.buffer)"], ids=["close", "wrap"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_plugin_that_closes_a_standard_stream_stops_nobody(line: Line, stream: str, closing: str) -> None:
    """The host still writes there, and names the plugin if it lacks something. Wrappers close at their end."""
    line.install("good")
    line.install("closing", f"import io, sys\n\n{closing.format(stream)}\n")
    process = line.start("plugins")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, "")
    assert "closing (cli-closing 1.0) is failed.\n  import: it implements no hook." in output


def _phase(data: Path) -> str | None:
    try:
        return str(send_command(data, "status")["phase"])
    except NotRunning:
        return None


@pytest.mark.parametrize("settings", ["nonsense = 3", '[log]\nformat = "text"'])
def test_the_journal_is_told_that_a_refused_start_is_an_error(line: Line, settings: str) -> None:
    """Each line that says why begins with the priority of an error, if standard error leads to systemd's journal."""
    line.install("bad", "raise RuntimeError('broken on purpose')")
    line.configure(settings)
    with (line.folder / "log").open("w+") as log:
        found = os.fstat(log.fileno())
        journal = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        environment = {**os.environ, "PYTHONPATH": str(line.packages), **journal}
        line.start("serve", "--strict", stderr=log, env=environment).communicate(timeout=60)
        log.seek(0)
        reason = [text for text in log if "nonsense" in text or "does not start" in text]
    assert [text[:10] for text in reason] == ["<3>Error: "]
