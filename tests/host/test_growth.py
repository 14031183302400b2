"""What many plugins and many routes cost: twice as many never cost much more than twice as much."""

from __future__ import annotations

import threading

import pytest
from falcon.routing.compiled import CompiledRouterNode
from tests.host.test_jobs import with_jobs
from tests.waiting import wait_until

from plughost import Job, JobRun, Operation, Route, RouteGroup
from plughost._plugins.validation import routing_problem
from plughost.testing import plugin_distribution, running_host


class Looked:
    """A resource that counts how often a router looks for its responders."""

    def __init__(self) -> None:
        """Start with none."""
        self.count = 0

    def on_get(self, req: object, resp: object, **fields: str) -> None:
        """Answer."""

    def __getattr__(self, name: str) -> object:
        self.count += name == "on_post"
        raise AttributeError(name)


def lookups(routes: int) -> int:
    """Return how often a router looks at so many routes, the last of which is refused beside the first one."""
    resource = Looked()
    paths = ("/x/{a}/y", *(f"/{number}" for number in range(routes)), "/x/{b}/z")
    operations = {"GET": Operation(summary="Get it")}
    group = RouteGroup(prefix="/p", routes=tuple(Route(path, resource, operations) for path in paths))
    problem = routing_problem([group])
    assert problem is not None
    assert problem.startswith("route /p/x/{b}/z can't stand beside route /p/x/{a}/y:")
    return resource.count


def test_a_clash_among_many_routes_is_found_in_time() -> None:
    """A refused route is tried beside each earlier one, not each route beside each other."""
    assert lookups(40) < 3 * lookups(20)


@pytest.mark.parametrize("fields", ["", "/{id}"])
def test_routes_beside_each_other_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch, fields: str) -> None:
    """Thousands of them would take longer than `hook_timeout`; only those with a field at the same place can clash."""
    compare, compared = CompiledRouterNode.conflicts_with, []

    def count(node: CompiledRouterNode, segment: str) -> bool:
        compared.append(segment)
        return compare(node, segment)

    monkeypatch.setattr(CompiledRouterNode, "conflicts_with", count)
    operations = {"GET": Operation(summary="Get it")}
    routes = tuple(Route(f"/{number}{fields}", Looked(), operations) for number in range(100))
    assert routing_problem([RouteGroup(prefix="/p", routes=routes)]) is None
    assert len(compared) <= len(routes)


class Name(str):
    """A plugin's name that counts how often it is looked up."""

    hashed = 0

    def __hash__(self) -> int:
        Name.hashed += 1
        return super().__hash__()


def test_many_jobs_that_are_due_at_once_are_looked_at_once_each() -> None:
    """While some of 300 jobs run, the scheduler doesn't search all of them for each that is due."""
    gate, begun = threading.Event(), threading.Event()

    def run(_: JobRun) -> None:
        begun.set()
        gate.wait()

    jobs = [Job(name=f"job{number}", run=run, at_start=True) for number in range(300)]
    before = Name.hashed
    with running_host(distributions=[plugin_distribution(Name("many"), with_jobs(*jobs))]) as host:
        begun.wait()
        wait_until(lambda: any(each.running_since for each in host.host.jobs.views()))
        assert 0 < Name.hashed - before < 300 * 100
        gate.set()
