"""Part of the conformance suite: the operations of a plugin, and how to call them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, urlencode

import falcon
import httpx

from plughost._apps.parameters import FORMATS
from plughost._plugins.environment import ENTRY_POINT_GROUP
from plughost.http._events import MEDIA_TYPE
from plughost.http._paging import text_of
from plughost.testing._hosts import RunningHost, running_host

if TYPE_CHECKING:
    from types import ModuleType

    from plughost import Operation, Parameter, RouteGroup

Prepare = Callable[[RunningHost, httpx.Client], None]
"""Prepares a client before its first request."""

_FIELD: Final = re.compile(r"\{(\w+)(?::(\w+)[^{}]*)?\}")
_VALID: Final = ("default", "minimum")  # keywords whose value is valid
_VALUES_BY_CONVERTER: Final = {"dt": "2027-01-01T00:00:00Z", "uuid": "00000000-0000-4000-8000-000000000001"}

DENIED: Final = frozenset({401, 403})
"""The statuses for a client without access."""


@dataclass(frozen=True, slots=True)
class OperationCall:
    """An operation, and how to call it: each field of the path and each required parameter has a value.

    Attributes:
        body_limit: The largest body in bytes that it reads.
    """

    site: str
    group: RouteGroup
    path: str
    query: str
    headers: Mapping[str, str]
    method: str
    operation: Operation
    methods: frozenset[str]
    body_limit: int

    @property
    def url(self) -> str:
        """Its path and query."""
        return self.path + self.query

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
    def streams_events(self) -> bool:
        """Whether its responses are event streams, which don't end by themselves."""
        return MEDIA_TYPE in self.operation.produces


class Suite:
    """The base of each part of the conformance suite. See `conformance` for the attributes."""

    plugin: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]]
    beside: ClassVar[Collection[metadata.Distribution] | None]
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
    def serving(self, *others: str, **options: Any) -> Iterator[RunningHost]:
        """Run a host with the plugin, and others beside it, on SQLite by default."""
        options = {"settings": {"stores": {}, **self.settings}, "strict": True, "beside": self.beside, **options}
        with running_host([self.plugin, *others], **options) as host:
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


def send(client: httpx.Client, call: OperationCall, method: str, url: str, **sent: Any) -> httpx.Response:
    """Send a request, and read its response. An event stream that isn't declared is a failure: it never ends."""
    with client.stream(method, url, **sent) as answer:
        is_stream = answer.headers.get("Content-Type", "").startswith(MEDIA_TYPE)
        assert not is_stream, f'{call.label} sends an event stream: declare it, produces=("{MEDIA_TYPE}",)'
        answer.read()
    return answer


def operation_calls(host: RunningHost, plugin: str) -> list[OperationCall]:
    """Return every operation of a plugin."""
    return [
        OperationCall(
            site=site,
            group=group,
            path=_path_of(group.prefix + route.path, operation) or "/",
            query=_query_of(operation),
            headers={each.name: ",".join(_example(each.schema)) for each in _required(operation, "header")},
            method=method,
            operation=operation,
            methods=frozenset(route.operations),
            body_limit=mounted.routes[group.prefix + route.path].operations[method].body_limit,
        )
        for site, app in host.host.generation.sites.items()
        for (owner, group), mounted in zip(app.view.groups, app.groups, strict=True)
        if owner == plugin
        for route in group.routes
        for method, operation in route.operations.items()
    ]


def _path_of(template: str, operation: Operation) -> str:
    schemas = {each.name: each.schema for each in operation.parameters if each.place == "path"}

    def value_of(field: re.Match[str]) -> str:
        name, converter = field.groups()
        (text,) = _example(schemas.get(name, {}), _VALUES_BY_CONVERTER.get(converter, "1"))
        return quote(text, safe="")

    return _FIELD.sub(value_of, template)


def _query_of(operation: Operation) -> str:
    pairs = [(each.name, text) for each in _required(operation, "query") for text in _example(each.schema)]
    return f"?{urlencode(pairs)}" if pairs else ""


def _required(operation: Operation, place: str) -> Iterator[Parameter]:
    return (each for each in operation.parameters if each.required and each.place == place)


def _example(schema: Mapping[str, Any], otherwise: str = "1") -> list[str]:
    """Return the text of a value that a schema allows, its first example if it has one; of an array, each item's."""
    if schema.get("type") == "array":
        items = next(iter(schema.get("examples", ())), None)
        return _example(schema["items"]) if items is None else [text_of(each) for each in items]
    known = [*schema.get("examples", ()), *schema.get("enum", ()), *(schema[key] for key in _VALID if key in schema)]
    if known:
        return [text_of(known[0])]
    if "format" in schema:
        return [FORMATS[schema["format"]][2]]
    return ["true"] if schema.get("type") == "boolean" else [otherwise.ljust(schema.get("minLength", 0), "1")]


def remove_modules(package: str) -> dict[str, ModuleType]:
    """Remove a package's modules from `sys.modules`, and return them."""
    names = [name for name in sys.modules if name == package or name.startswith(f"{package}.")]
    return {name: sys.modules.pop(name) for name in names}
