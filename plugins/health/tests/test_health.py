"""The health plugin, on a running host."""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import metadata
from typing import Any

import httpx
import pytest

from plughost import Check, Health, PluginContext, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host


class Watched:
    """A plugin with one check, which the test controls."""

    def __init__(self, check: Any, kinds: frozenset[str] = frozenset({"ready"})) -> None:
        """Declare a check."""
        self._check = Check(name="watched", check=check, kinds=kinds)  # type: ignore[arg-type] # the tests pass the contract's kinds

    @hookimpl
    def register_checks(self, context: PluginContext[Any]) -> list[Check]:
        """Return the check."""
        return [self._check]


def _host(plugin: object | None = None, **settings: Any) -> Any:
    installed = list(metadata.distributions())
    if plugin is not None:
        installed.append(plugin_distribution("watched", plugin))
    wanted = ["health", *(["watched"] if plugin is not None else [])]
    return running_host(wanted, settings={"plugins": {"health": {"cache": 0, **settings}}}, distributions=installed)


def _checks(answer: httpx.Response) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in answer.json()["checks"]}


@pytest.mark.parametrize("path", ["", "/live", "/ready", "/started"])
def test_a_healthy_host_is_up(path: str) -> None:
    """Each probe of a healthy host answers 200 and UP, and lists its checks."""
    with _host() as host, host.client() as client:
        answer = client.get(f"/q/health{path}")
        assert (answer.status_code, answer.json()["status"]) == (200, "UP")
        named = {"": "plugins", "/live": "process", "/ready": "host", "/started": "started"}[path]
        assert _checks(answer)[named]["status"] == "UP"


def test_certificate_and_disk_are_checked() -> None:
    """Readiness shows the certificate's remaining days and the free space on the data folder's disk."""
    with _host() as host, host.client() as client:
        checks = _checks(client.get("/q/health/ready"))
        assert checks["certificate"]["data"]["daysLeft"] > 300
        assert checks["disk"]["data"]["freeBytes"] > 0


def test_a_check_that_is_down_fails_only_its_probe() -> None:
    """A plugin's readiness check that is down makes readiness 503, with its data, and leaves liveness at 200."""
    with _host(Watched(lambda: Health(up=False, data={"why": "no paper"}))) as host, host.client() as client:
        answer = client.get("/q/health/ready")
        assert (answer.status_code, answer.json()["status"]) == (503, "DOWN")
        assert _checks(answer)["watched"] == {"name": "watched", "status": "DOWN", "data": {"why": "no paper"}}
        assert client.get("/q/health/live").status_code == 200


def test_a_check_that_raises_reveals_nothing_internal() -> None:
    """It is down, and the answer contains the error's type but not its message."""

    def broken() -> Health:
        raise OSError("secret/path")

    with _host(Watched(broken)) as host, host.client() as client:
        answer = client.get("/q/health")
        assert answer.status_code == 503
        assert _checks(answer)["watched"]["data"] == {"error": "OSError"}
        assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("check", "error"),
    [
        (lambda: True, "it returned a bool, and no Health"),
        (lambda: Health(up=True, data={"value": object()}), "TypeError"),
        (sys.exit, "SystemExit"),
    ],
)
def test_a_check_that_breaks_the_rules_is_down(check: Any, error: str) -> None:
    """Whatever one plugin's check does, the probe answers with the results of all, again and again."""
    with _host(Watched(check)) as host, host.client() as client:
        for _ in range(2):
            answer = client.get("/q/health/ready")
            assert (answer.status_code, _checks(answer)["watched"]["data"]) == (503, {"error": error})
            assert _checks(answer)["host"]["status"] == "UP"


def test_checks_need_no_further_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the system allows none, a probe runs them itself, and so does each later one."""
    start = threading.Thread.start
    refused: list[str] = []

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "health:watched":
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with _host(Watched(lambda: Health(up=True))) as host, host.client() as client:
        answers = [client.get("/q/health/ready") for _ in range(2)]
    assert [(each.status_code, _checks(each)["watched"]["status"]) for each in answers] == [(200, "UP")] * 2
    assert len(refused) == 2


def test_a_check_that_hangs_holds_one_thread() -> None:
    """A check that does not return counts as down, and runs only once, however many probes ask."""
    release, calls = threading.Event(), []

    def hang() -> Health:
        calls.append(1)
        release.wait(30)
        return Health(up=True)

    with _host(Watched(hang), timeout=0.05) as host, host.client() as client:
        responses = [client.get("/q/health/ready") for _ in range(3)]
        release.set()
        assert [answer.status_code for answer in responses] == [503, 503, 503]
        assert "not returned" in _checks(responses[0])["watched"]["data"]["error"]
        assert len(calls) == 1


def test_only_the_first_probe_waits_for_a_hanging_check() -> None:
    """Later probes get its state at once, and block nobody."""
    release = threading.Event()

    def hang() -> Health:
        release.wait(60)
        return Health(up=True)

    with _host(Watched(hang), timeout=2) as host, host.client(timeout=60) as client:
        begun = time.monotonic()
        assert [client.get("/q/health/ready").status_code for _ in range(30)] == [503] * 30
        waited = time.monotonic() - begun
        release.set()
    assert waited < 30  # if each probe waited, it would take 60 s


def test_probes_that_wait_for_a_check_hold_up_no_liveness_probe() -> None:
    """While a database hangs, many ask whether the host is ready, and nobody is to restart it for that."""
    release = threading.Event()

    def hang() -> Health:
        release.wait(60)
        return Health(up=True)

    with _host(Watched(hang), timeout=60) as host, host.client(timeout=60) as client, ExitStack() as waiting:
        for _ in range(60):
            probe = waiting.enter_context(socket.create_connection((client.base_url.host, client.base_url.port)))
            probe.sendall(b"GET /q/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert [client.get("/q/health/live").status_code for _ in range(3)] == [200] * 3
        release.set()


def test_a_crowd_that_waits_for_readiness_leaves_liveness_its_time() -> None:
    """A check that takes a while is not down because others wait for a slow database."""
    release, while_running = threading.Event(), threading.Event()

    class Slow(Watched):
        """A plugin with a second check."""

        @hookimpl
        def register_checks(self, context: PluginContext[Any]) -> list[Check]:
            """Return both."""
            database = Check(name="database", check=lambda: Health(up=release.wait(60)), kinds=frozenset({"ready"}))
            return [*super().register_checks(context), database]

    worker = Slow(lambda: Health(up=not while_running.wait(0.2)), frozenset({"live"}))
    with _host(worker, timeout=60) as host, host.client(timeout=60) as client, ExitStack() as waiting:
        crowd = []
        for _ in range(60):
            probe = waiting.enter_context(socket.create_connection((client.base_url.host, client.base_url.port)))
            probe.sendall(b"GET /q/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            crowd.append(probe)
        assert select.select(crowd, [], [], 60)[0]  # it doesn't wait, so that others do
        status = client.get("/q/health/live").status_code
        release.set()
    assert status == 200


def test_a_probe_after_others_waits_as_they_did() -> None:
    """It finds what its own check does, not what the last one did."""
    runs: list[int] = []
    never = threading.Event()

    def work() -> Health:
        runs.append(1)
        return Health(up=never.wait(0.2) or len(runs) < 5)

    with _host(Watched(work, frozenset({"live"})), timeout=60) as host, host.client(timeout=60) as client:
        assert [client.get("/q/health/live").status_code for _ in range(5)] == [200] * 4 + [503]


def test_a_check_that_has_just_begun_is_not_late() -> None:
    """A probe that waited for a slow database doesn't blame a check that another probe began meanwhile."""
    release, nearly_late, began_again = threading.Event(), threading.Event(), threading.Event()
    runs: list[int] = []

    class Slow(Watched):
        """A plugin with a second check, whose result comes first."""

        @hookimpl
        def register_checks(self, context: PluginContext[Any]) -> list[Check]:
            """Return both."""
            database = Check(name="database", check=hang, kinds=frozenset({"ready"}))
            return [*super().register_checks(context), database]

    def hang() -> Health:
        release.wait(1.8)
        nearly_late.set()
        return Health(up=release.wait(60))

    def work() -> Health:
        runs.append(1)
        if len(runs) > 1:
            began_again.set()
            release.wait(60)
        return Health(up=True)

    with _host(Slow(work, frozenset({"live"})), timeout=2) as host, ThreadPoolExecutor(2) as threads:
        everything = threads.submit(httpx.get, f"{host.url()}/q/health", timeout=60)
        assert nearly_late.wait(60)
        threads.submit(httpx.get, f"{host.url()}/q/health/live", timeout=60)
        assert began_again.wait(60)
        seen = _checks(everything.result(60))
        release.set()
    assert (seen["database"]["status"], seen["watched"]["status"]) == ("DOWN", "UP")


def test_a_storm_of_probes_runs_a_check_once() -> None:
    """Its result is reused while it is fresh, so that many probes cost one run."""
    calls = []

    def count() -> Health:
        calls.append(1)
        return Health(up=True)

    with _host(Watched(count), cache=600) as host, host.client() as client:
        assert {client.get("/q/health/ready").status_code for _ in range(20)} == {200}
        assert len(calls) == 1


def test_a_full_disk_is_not_ready() -> None:
    """With less free space than the setting requires, the host is not ready."""
    with _host(minimum_disk="1000 PB") as host, host.client() as client:
        assert client.get("/q/health/ready").status_code == 503


def test_a_size_with_a_rest_is_refused() -> None:
    """Free space of "1,5 GB" is not taken for one byte: the plugin fails, and is told what a size is."""
    with (
        _host(minimum_disk="1,5 GB") as host,
        pytest.raises(KeyError, match="minimum_disk: must be a size in bytes, or one with a unit"),
    ):
        host.port()


def test_a_failed_plugin_is_shown_and_affects_no_readiness() -> None:
    """The overall health names it, and readiness stays up."""
    with _host(ImportError("nothing there")) as host, host.client() as client:
        assert _checks(client.get("/q/health"))["plugins"]["data"] == {"watched": "failed"}
        assert client.get("/q/health/ready").status_code == 200


def test_ready_is_down_while_the_host_drains() -> None:
    """A request that arrives on an open connection during the drain finds the host not ready."""
    entered, release = threading.Event(), threading.Event()

    def wait() -> Health:
        entered.set()
        return Health(up=release.wait(30))

    with _host(Watched(wait, frozenset({"live"})), timeout=60) as host, host.client() as client:
        assert client.get("/q/health/ready").status_code == 200
        slow = threading.Thread(target=httpx.get, args=[f"{host.url()}/q/health/live"], kwargs={"timeout": 30})
        slow.start()
        assert entered.wait(10)
        stopping = threading.Thread(target=host.host.stop)
        stopping.start()
        _wait_for_phase(host, "draining")
        answer = client.get("/q/health/ready")
        release.set()
        slow.join()
        stopping.join()
    assert answer.status_code == 503
    assert _checks(answer)["host"]["data"]["phase"] == "draining"


def test_a_manual_drain_makes_the_host_unready_with_a_reason() -> None:
    """This takes effect at once, whatever was cached; the host counts as started and alive."""
    with _host(cache=300) as host, host.client() as client:
        assert client.get("/q/health/ready").status_code == 200
        host.host.lifecycle.drain()
        answer = client.get("/q/health/ready")
        assert answer.status_code == 503
        assert "plughost drain" in _checks(answer)["host"]["data"]["reason"]
        assert client.get("/q/health/started").status_code == client.get("/q/health/live").status_code == 200
        host.host.lifecycle.drain(undo=True)
        assert client.get("/q/health/ready").status_code == 200


def _wait_for_phase(host: RunningHost, phase: str) -> None:
    deadline = time.monotonic() + 120
    while host.host.lifecycle.phase != phase:
        assert time.monotonic() < deadline, f"the host never came to be {phase}"
        threading.Event().wait(0.01)
