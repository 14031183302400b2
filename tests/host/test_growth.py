"""What many plugins and many routes cost: twice as many never cost much more than twice as much."""

from __future__ import annotations

from plughost import Operation, Route, RouteGroup
from plughost._plugins.validation import routing_problem


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
    """Return how often a router looks at so many routes, the last of which is refused beside the one before it."""
    resource = Looked()
    paths = (*(f"/{number}" for number in range(routes)), "/x/{a}/y", "/x/{b}/z")
    operations = {"GET": Operation(summary="Get it")}
    group = RouteGroup(prefix="/p", routes=tuple(Route(path, resource, operations) for path in paths))
    problem = routing_problem([group])
    assert problem is not None
    assert problem.startswith("route /p/x/{b}/z can't stand beside route /p/x/{a}/y:")
    return resource.count


def test_a_clash_among_many_routes_is_found_in_time() -> None:
    """A refused route is tried beside each earlier one, not each route beside each other."""
    assert lookups(40) < 3 * lookups(20)
