"""Readiness goes down with the reason before the ports close, and requests are still served, on either engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.integration.kit import LANES, PATIENCE, HostProcess, host_process
from tests.waiting import wait_until

if TYPE_CHECKING:
    from plughost._settings.models import EngineName

AGES = 600.0
"""A delay, in seconds, that no test waits for."""


@pytest.fixture(params=["waitress", "granian"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., HostProcess]]:
    """Start hosts with every plugin; their HTTP listeners are of each engine, HTTPS is granian's."""
    engine: EngineName = request.param
    with ExitStack() as stack:

        def starting(**settings: Any) -> HostProcess:
            complete = {"sites": {"main": {"http_engine": engine}}, **settings}
            return stack.enter_context(host_process(tmp_path, complete))

        yield starting


class Prober:
    """A load balancer's probe, with a new connection each time, in a thread, until the port closes.

    Attributes:
        seen: What each probe found: a status, or `refused`.
        reasons: The reasons why the host was not ready, as they were reported.
    """

    def __init__(self, host: HostProcess, scheme: str) -> None:
        """Start the probe."""
        self.seen: list[int | str] = []
        self.reasons: set[str] = set()
        self._host, self._scheme = host, scheme
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        lane = next(lane for lane in LANES if lane.scheme == self._scheme)
        while "refused" not in self.seen:
            with self._host.client(lane) as client:
                try:
                    answer = client.get("/q/health/ready")
                except httpx.ConnectError:
                    self.seen.append("refused")
                    continue
            self.seen.append(answer.status_code)
            checks = {check["name"]: check for check in answer.json()["checks"]}
            if checks["host"]["status"] == "DOWN":
                self.reasons.add(checks["host"]["data"]["reason"])

    def join(self) -> list[int | str]:
        """Wait until it was refused; return its results, with runs of equal ones shortened to one."""
        self._thread.join(PATIENCE)
        return [each for number, each in enumerate(self.seen) if not number or self.seen[number - 1] != each]


def served(host: HostProcess) -> set[int]:
    """Return a service's status codes over new connections on every lane."""
    statuses = set()
    for lane in LANES:
        with host.client(lane) as client:
            statuses.add(client.get("/api/v2/products").status_code)
    return statuses


def run(host: HostProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside a host."""
    command = [sys.executable, "-c", "from plughost._cli import main; main()", *arguments]
    return subprocess.run(
        [*command, "--config", "plughost.toml"],
        cwd=host.data_dir.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_a_probe_sees_503_before_it_is_refused(start: Callable[..., HostProcess]) -> None:
    """After SIGTERM, readiness is down with the reason and new connections are served; a second SIGTERM ends that."""
    host = start(shutdown_delay=AGES)
    probers = [Prober(host, scheme) for scheme in ("http", "https")]
    wait_until(lambda: all(200 in prober.seen for prober in probers))
    host.process.send_signal(signal.SIGTERM)
    wait_until(lambda: all(503 in prober.seen for prober in probers))
    assert served(host) == {200}
    status = host.ask("status")
    assert (status["phase"], status["unready"]) == ("leaving", next(iter(probers[0].reasons)))
    assert "shutdown_delay" in status["unready"]
    assert "leaving" in host.ask("reload")["problems"][0]
    assert host.stop() == 0
    for prober in probers:
        assert prober.join() == [200, 503, "refused"]
    events = {event["event"]: event for event in map(json.loads, host.errors.read_text().splitlines())}
    assert events["leaving"]["seconds"] == AGES


def test_the_command_drain_takes_readiness_down(start: Callable[..., HostProcess]) -> None:
    """`plughost drain` lowers readiness while all is served, even over a reload; `--undo` raises it again."""
    host = start()
    assert "Readiness is down" in run(host, "drain").stdout
    assert host.ask("reload")["ok"]
    with host.client() as client:
        answer = client.get("/q/health/ready")
        assert answer.status_code == 503
        checks = {check["name"]: check for check in answer.json()["checks"]}
        assert "plughost drain" in checks["host"]["data"]["reason"]
    assert served(host) == {200}
    assert "down: plughost drain took it out of service" in run(host, "status").stdout
    undone = run(host, "drain", "--undo", "--json")
    assert (undone.returncode, json.loads(undone.stdout)) == (0, {"phase": "serving", "unready": None})
    with host.client() as client:
        assert client.get("/q/health/ready").status_code == 200


def test_a_host_drained_by_hand_does_not_wait_again(start: Callable[..., HostProcess]) -> None:
    """The time with lowered readiness counts for shutdown_delay; a drain can't be undone during a stop."""
    host = start(shutdown_delay=AGES)
    run(host, "drain")
    host.process.send_signal(signal.SIGTERM)
    wait_until(lambda: host.ask("status")["phase"] == "leaving")
    refused = run(host, "drain", "--undo")
    assert (refused.returncode, "asked to stop" in refused.stdout) == (1, True)
    assert host.stop() == 0
