"""Small plugins for the host's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plughost import NotRunning, Operation, PluginContext, Route, RouteGroup, hookimpl
from plughost._runtime.control import send_command
from plughost.testing import plugin_distribution

if TYPE_CHECKING:
    from pathlib import Path

    import falcon

    from plughost import RequestRecord
    from plughost.testing import RunningHost


class Says:
    """Answers with a word, and with the number of its answers so far."""

    def __init__(self, word: str) -> None:
        """Store the word."""
        self.word = word
        self.count = 0

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        self.count += 1
        resp.media = {"word": self.word, "count": self.count}


class Speaker:
    """A plugin with one route that says a word."""

    def __init__(self, word: str, prefix: str = "/say", site: str = "main") -> None:
        """Store the word, its prefix and its site."""
        self.word = word
        self.prefix = prefix
        self.site = site
        self.calls: list[str] = []

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount the route."""
        route = Route("", Says(self.word), {"GET": Operation(summary="Say a word")})
        return [RouteGroup(prefix=self.prefix, site=self.site, routes=(route,))]

    @hookimpl
    def started(self, context: PluginContext[Any]) -> None:
        """Record the call."""
        self.calls.append("started")

    @hookimpl
    def draining(self, context: PluginContext[Any]) -> None:
        """Record the call."""
        self.calls.append("draining")

    @hookimpl
    def stopping(self, context: PluginContext[Any]) -> None:
        """Record the call."""
        self.calls.append("stopping")


TIME_LIMIT = 60.0
"""The setting `hook_timeout` of hosts whose plugins hang; see the fixture `hang`."""


class Plugin:
    """A plugin made of the given functions, one for each hook."""

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        """Implement the given hooks."""
        vars(self).update({name: hookimpl(function) for name, function in hooks.items()})


def serving(resource: object, prefix: str = "/say", path: str = "", **options: Any) -> Plugin:
    """Return a plugin with one route, and an operation for each method of the resource."""
    return Plugin(register_routes=lambda context: [group_of(resource, prefix, path, **options)])


def group_of(resource: object, prefix: str = "/say", path: str = "", **options: Any) -> RouteGroup:
    """Return a route group with one route, and an operation for each method of the resource."""
    methods = [name.removeprefix("on_").upper() for name in dir(resource) if name.startswith("on_")]
    operations = {method: Operation(summary=f"{method} it") for method in methods}
    return RouteGroup(prefix=prefix, routes=(Route(path, resource, operations),), **options)


def reason(host: RunningHost, plugin: str) -> str:
    """Return the state of a plugin of a running host, and the reason."""
    assert host.host.generation is not None
    entry = host.host.generation.registry.get(plugin)
    assert entry is not None
    return f"{entry.state}: {entry.failure}"


def is_running(data_dir: Path) -> bool:
    """Return whether a host runs on a data folder: a running host answers any command."""
    try:
        send_command(data_dir, "ping")
    except NotRunning:
        return False
    return True


class Watcher:
    """An observer that records what it receives."""

    def __init__(self) -> None:
        """Start with no records."""
        self.batches: list[tuple[RequestRecord, ...]] = []

    def __call__(self, requests: tuple[RequestRecord, ...]) -> None:
        """Record the requests."""
        self.batches.append(requests)

    @property
    def targets(self) -> list[str]:
        """The targets of all requests so far."""
        return [each.target for batch in self.batches for each in batch]


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a function that raises an error."""

    def act() -> Any:
        raise error

    return act


def with_good_plugin(bad: object) -> list[Any]:
    """Return the distributions of a bad plugin and of a good one."""
    return [plugin_distribution("bad", bad), plugin_distribution("good", Speaker("good", "/good"))]
