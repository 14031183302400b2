"""The test kit says why a plugin under test does not serve, or what it did wrong."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import falcon
import pytest
from tests.host.plugins import Plugin, group_of

from plughost import Job, JobRun, Response
from plughost.testing import conformance, plugin_distribution, running_host
from plughost.testing._conformance import make_ask
from plughost.testing._operations import operation_calls

if TYPE_CHECKING:
    from plughost import RouteGroup


class Fails:
    """A resource with a defect."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Fail."""
        raise LookupError("a defect")


class Raises:
    """A resource that answers with an error."""

    def __init__(self, error: type[falcon.HTTPError]) -> None:
        """Store its class."""
        self._error = error

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Raise it."""
        raise self._error


def test_a_client_of_a_plugin_that_failed_names_the_reason() -> None:
    """An author's first mistake is in a hook, and the first line of a test that notices it asks for a client."""
    broken = plugin_distribution("broken", Plugin(register_routes=lambda context: None))
    with running_host(distributions=[broken]) as host:
        with pytest.raises(KeyError, match="main over http; broken is failed: register_routes: it returned None"):
            host.client()
        with pytest.raises(KeyError, match="no active plugin has a store notes; broken is failed"):
            host.store("notes")


def test_the_conformance_suite_of_a_plugin_that_is_not_installed_is_one_error() -> None:
    """A misspelt name, or a plugin that isn't installed yet, is refused before any of its tests is collected."""
    with pytest.raises(LookupError, match=r"no plugin nonesuch is installed \(`pip install -e \.` .*known: "):
        conformance("nonesuch")
    assert conformance("brought", beside=[plugin_distribution("brought", Plugin())]).plugin == "brought"


def test_an_error_in_the_log_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """The test that got a 500 shows the traceback, and no line of the log that is no error."""
    fails = plugin_distribution("fails", Plugin(register_routes=lambda context: [group_of(Fails())]))
    with running_host(distributions=[fails]) as host, host.client() as client:
        assert client.get("/say").status_code == 500
    errors = capfd.readouterr().err
    assert "LookupError: a defect" in errors
    assert '"event": "request"' not in errors


def test_a_job_is_run_in_the_test() -> None:
    """It runs once, in the test's thread, and raises there. It doesn't count as a run, and an unknown job is named."""
    threads: list[int] = []

    def run(run: JobRun) -> None:
        threads.append(threading.get_ident())
        raise LookupError("a defect")

    plugin = Plugin(register_jobs=lambda context: [Job(name="tidy", run=run, every=3600)])
    with running_host(distributions=[plugin_distribution("tidying", plugin)]) as host:
        with pytest.raises(LookupError, match="a defect"):
            host.run_job("tidying", "tidy")
        assert threads == [threading.get_ident()]
        assert host.host.view.jobs[0].failures == 0
        with pytest.raises(KeyError, match="no active plugin tidying has a job tidu"):
            host.run_job("tidying", "tidu")


@pytest.mark.parametrize(
    ("error", "is_accepted"), [(falcon.HTTPBadGateway, {502}), (falcon.HTTPServiceUnavailable, set())]
)
def test_a_declared_502_is_no_defect(error: type[falcon.HTTPError], is_accepted: set[int]) -> None:
    """Conformance accepts a gateway's 502 where the operation declares it, only there, and no other 5xx."""
    found = Response(description="The upstream is away.")

    def groups(context: Any) -> list[RouteGroup]:
        group = group_of(Raises(error))
        (route,) = group.routes
        declared = replace(route.operations["GET"], responses={502: found, 503: found})
        return [group, replace(group, prefix="/declared", routes=(replace(route, operations={"GET": declared}),))]

    accepted = set()
    gateway = plugin_distribution("gateway", Plugin(register_routes=groups))
    with running_host(distributions=[gateway]) as host, host.client() as client:
        undeclared, declared = operation_calls(host, "gateway")
        ask = make_ask(lambda site: client)
        with suppress(AssertionError):
            accepted.add(ask(declared).status_code)
        with pytest.raises(AssertionError, match="GET /say: 50"):
            ask(undeclared)
    assert accepted == is_accepted
