"""Part of the conformance suite: the operations of a plugin, and how to call them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar, Final

import falcon
import httpx

from plughost._plugins.discovery import ENTRY_POINT_GROUP
from plughost.http._events import MEDIA_TYPE
from plughost.http._json.body import DEFAULT_BODY_LIMIT
from plughost.testing._hosts import RunningHost, running_host

if TYPE_CHECKING:
    from types import ModuleType

    from plughost import Operation, RouteGroup

Prepare = Callable[[RunningHost, httpx.Client], None]
"""Prepares a client before its first request."""

_FIELD: Final = re.compile(r"\{\w+(?::[^{}]*)?\}")

DENIED: Final = frozenset({401, 403})
"""The statuses for a client without access."""


@dataclass(frozen=True, slots=True)
class OperationCall:
    """An operation, and how to call it: each field of the path has a value."""

    site: str
    group: RouteGroup
    path: str
    method: str
    operation: Operation
    methods: frozenset[str]

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.method} {self.path}"

    @property
    def denials(self) -> frozenset[int]:
        """The statuses for a client without access, whatever is sent."""
        return DENIED if self.operation.security else frozenset()

    @property
    def reads_json(self) -> bool:
        """Whether it reads a JSON body into a model."""
        return self.operation.request is not None and falcon.MEDIA_JSON in self.consumes

    @property
    def consumes(self) -> tuple[str, ...]:
        """The media types of its body. Empty if it reads no body."""
        return self.operation.consumes or (() if self.operation.request is None else (falcon.MEDIA_JSON,))

    @property
    def body_limit(self) -> int:
        """The largest body in bytes that it declares to read."""
        return self.operation.body_limit or self.group.body_limit or DEFAULT_BODY_LIMIT

    @property
    def streams_events(self) -> bool:
        """Whether its responses are event streams, which don't end by themselves."""
        return MEDIA_TYPE in self.operation.produces


class Suite:
    """The base of each part of the conformance suite. See `conformance` for the attributes."""

    plugin: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]]
    prepare: Prepare

    @property
    def package(self) -> str:
        """The package that has the plugin's hooks."""
        (point,) = metadata.entry_points(group=ENTRY_POINT_GROUP, name=self.plugin)
        return point.module.partition(".")[0]

    @contextmanager
    def fresh_modules(self) -> Iterator[None]:
        """Remove the plugin's modules for the length of a block, so that it imports them afresh; restore `sys.path`."""
        earlier, path = remove_modules(self.package), list(sys.path)
        try:
            yield
        finally:
            remove_modules(self.package)
            sys.modules.update(earlier)
            sys.path[:] = path

    @contextmanager
    def serving(self, *beside: str, **options: Any) -> Iterator[RunningHost]:
        """Run a host with the plugin, and others beside it, on SQLite."""
        settings = {"stores": {}, **self.settings}
        with running_host([self.plugin, *beside], settings=settings, strict=True, **options) as host:
            yield host

    @contextmanager
    def clients(self, host: RunningHost, **options: Any) -> Iterator[Callable[[str], httpx.Client]]:
        """Return a function from a site to its client: the same one each time, prepared for requests."""
        with ExitStack() as stack:

            @cache
            def client_of(site: str) -> httpx.Client:
                client = stack.enter_context(host.client(site, **options))
                self.prepare(host, client)
                return client

            yield client_of


def unprepared(host: RunningHost, client: httpx.Client) -> None:
    """Do nothing: anybody may send requests."""


def operation_calls(host: RunningHost, plugin: str) -> list[OperationCall]:
    """Return every operation of a plugin."""
    return [
        OperationCall(
            site=site,
            group=group,
            path=_FIELD.sub("1", group.prefix + route.path) or "/",
            method=method,
            operation=operation,
            methods=frozenset(route.operations),
        )
        for site, view in host.host.view.sites.items()
        for owner, group in view.groups
        if owner == plugin
        for route in group.routes
        for method, operation in route.operations.items()
    ]


def remove_modules(package: str) -> dict[str, ModuleType]:
    """Remove a package's modules from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    return {name: sys.modules.pop(name) for name in names}
