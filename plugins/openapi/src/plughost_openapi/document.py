"""Generate the OpenAPI 3.1 description of a site from the declarations that are mounted there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, Literal

from plughost import Operation, Parameter, Response, Route, RouteGroup
from plughost.ratelimits import RateLimit
from plughost_openapi.components import HEADERS, Components, Object, body_model
from plughost_openapi.examples import example_of
from plughost_openapi.schemas import Schemas, Use, with_int64

if TYPE_CHECKING:
    from plughost import HostView, PluginView
    from plughost_openapi.settings import About

OPENAPI: Final = "3.1.0"

Format = Literal["yaml", "json"]
"""The format of a written description."""

_FIELD: Final = re.compile(r"\{(?P<name>\w+)(?::(?P<converter>\w+)(?:\([^)]*\))?)?\}")
_CONVERTERS: Final[Mapping[str, Object]] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "uuid": {"type": "string", "format": "uuid"},
    "path": {"type": "string"},
}
_NO_NUL: Final = r"^[^\u0000]*$"
_VERBS: Final = {"POST": "post", "PUT": "update", "PATCH": "change", "DELETE": "delete"}


def describe(view: HostView, site: str, servers: Sequence[str], about: About) -> Object:
    """Return the OpenAPI object of a site with these URLs, the preferred one first.

    Raises:
        KeyError: The host has no such site, or nothing is mounted there.
    """
    groups = [(plugin, group) for plugin, group in view.sites[site].groups if group.described]
    plugins = {each.name: each for each in view.plugins}
    components = Components(Schemas(_uses(groups)))
    paths: Object = {}
    for owner, group in groups:
        required = [plugins[name] for name in plugins[owner].requires if name in plugins]
        paths.update(_GroupWriter(group, plugins[owner], required, components).path_items())
    _make_unique(paths)
    version = metadata.version("plughost")
    description = f"Everything that plughost {version} serves on the site `{site}`, a tag for each plugin."
    found = {
        "openapi": OPENAPI,
        "info": {"title": f"plughost: {site}", "description": description, "version": version, **about.info()},
        "servers": [{"url": url} for url in servers],
        "tags": list(_tags(groups, plugins)),
        "security": [],  # none, unless an operation says so
        "paths": paths,
        "components": components.as_object(),
    }
    plain: Object = _plain(found)
    return plain


def _uses(groups: Iterable[tuple[str, RouteGroup]]) -> Iterator[Use]:
    for _, group in groups:
        yield body_model(group.errors), "serialization"
        for operation in (each for route in group.routes for each in route.operations.values()):
            if operation.request is not None:
                yield operation.request, "validation"
            models = (model for answer in operation.responses.values() for model in _models(answer).values())
            yield from ((model, "serialization") for model in models)


def _models(answer: Response) -> Mapping[str, Any]:
    """Return the model of a response's body by media type."""
    if isinstance(answer.model, Mapping):
        return answer.model
    return {} if answer.model is None else dict.fromkeys(answer.media_types, answer.model)


def _tags(groups: Iterable[tuple[str, RouteGroup]], plugins: Mapping[str, PluginView]) -> Iterator[Object]:
    titles: dict[str, list[str]] = {}
    for owner, group in groups:
        titles.setdefault(owner, []).append(group.title)
    for name, given in titles.items():
        plugin = plugins[name]
        title = ", ".join(dict.fromkeys(filter(None, given))) or name
        what = _summary(plugin.distribution) or title
        yield {"name": name, "description": f"{what} ({plugin.distribution} {plugin.version})"}


def _summary(distribution: str) -> str:
    try:
        summaries = metadata.metadata(distribution).get_all("Summary")  # a missing key warns on Python 3.12 and later
    except metadata.PackageNotFoundError:  # it was uninstalled, and serves until the next reload
        return ""
    return summaries[0] if summaries else ""


class _GroupWriter:
    """Writes the path items of one route group."""

    def __init__(
        self, group: RouteGroup, plugin: PluginView, required: Iterable[PluginView], components: Components
    ) -> None:
        self._group = group
        self._versions = tuple(sorted(group.versions, key=lambda version: [int(part) for part in version.split(".")]))
        self._plugin = plugin
        self._components = components
        self._schemas = components.schemas
        self._stores = any(each.declared.stores for each in (plugin, *required))
        middleware = self._plugin.declared.middleware
        self._limited = any(isinstance(each.component, RateLimit) and each.scope == "plugin" for each in middleware)

    def path_items(self) -> Iterator[tuple[str, Object]]:
        """Yield each path and its Path Item Object."""
        for route in self._group.routes:
            template = self._group.prefix + route.path
            path = _FIELD.sub(lambda field: f"{{{field['name']}}}", template)
            operations = {
                method.lower(): self._operation(route, path, method, operation)
                for method, operation in route.operations.items()
                if method in ("GET", "PUT", "POST", "DELETE", "PATCH")
            }
            if operations:
                yield path, operations

    def _operation(self, route: Route, path: str, method: str, operation: Operation) -> Object:
        written: Object = {
            "tags": [self._plugin.name],
            "summary": operation.summary,
            "description": operation.description,
            "operationId": operation.id or _operation_id(path, method, operation),
            "parameters": list(self._parameters(route, operation)),
        }
        sunset = operation.sunset or self._group.sunset
        if operation.deprecated or self._group.deprecated or sunset:
            written["deprecated"] = True
        if sunset:
            written["x-sunset"] = sunset.isoformat()
        if _reads_body(operation):
            written["requestBody"] = self._request_body(operation)
        written["responses"] = dict(self._responses(path, method, operation))
        if operation.security:
            written["security"] = [self._components.security(scheme) for scheme in operation.security]
        return {key: value for key, value in written.items() if value not in ("", [])}

    def _parameters(self, route: Route, operation: Operation) -> Iterator[Object]:
        declared = {(each.place, each.name): each for each in operation.parameters}
        for field in _FIELD.finditer(self._group.prefix + route.path):
            given = declared.pop(("path", field["name"]), None)
            schema = _CONVERTERS.get(field["converter"] or "", {"type": "string", "minLength": 1})
            yield _parameter(given or Parameter(name=field["name"], place="path", description="", schema=schema))
        yield from (_parameter(each) for each in declared.values() if each.place != "path")
        if operation.idempotent:
            yield self._components.idempotency_key()
        if self._versions:
            yield self._components.api_version(self._versions)
        yield self._components.request_id()

    def _request_body(self, operation: Operation) -> Object:
        schema = _BYTES if operation.request is None else self._schemas.of(operation.request, "validation")
        media: Object = {"schema": schema}
        if operation.examples:
            media["examples"] = {
                re.sub(r"[^A-Za-z0-9._-]+", "-", name): {"summary": name, "value": value}
                for name, value in operation.examples.items()
            }
        content = dict.fromkeys(operation.consumes or ("application/json",), media)
        encoding = _encoding(schema, self._schemas.components)
        if _MULTIPART in content and encoding:
            content[_MULTIPART] = {**media, "encoding": encoding}
        return {"required": True, "content": content}

    def _responses(self, path: str, method: str, operation: Operation) -> Iterator[tuple[str, Object]]:
        common = self._common_headers(operation)
        for status in sorted({*operation.responses, *self._host_errors(path, method, operation)}):
            own = HEADERS.get(status, {})
            answer = operation.responses.get(status)
            if answer is not None:
                yield str(status), self._response(status, answer, {**own, **answer.headers, **common})
            else:
                yield str(status), self._components.error(self._group, status, {**own, **common})

    def _host_errors(self, path: str, method: str, operation: Operation) -> set[int]:
        """Return the statuses of the errors that the host can return for an operation."""
        body, idempotent = _reads_body(operation), operation.idempotent
        successes = [answer for status, answer in operation.responses.items() if 200 <= status < 300]
        has_body = not successes or any(answer.model is not None or answer.schema is not None for answer in successes)
        possible = {
            400: body or self._versions or idempotent,
            401: operation.security,
            403: operation.security or method != "GET",
            404: "{" in path,
            406: operation.produces and has_body,
            409: idempotent,
            413: True,
            415: body,
            422: idempotent,
            429: self._limited,
            500: True,
            503: self._stores or self._limited or idempotent,
        }
        if body or any(each.refusal == 400 for each in operation.parameters):
            possible[self._group.errors.validation_status] = True
        return {status for status, applies in possible.items() if applies}

    def _common_headers(self, operation: Operation) -> dict[str, str]:
        """Return the headers of every response of an operation, with their descriptions."""
        return {
            name: text
            for applies, fields in (
                (self._limited, _RATE_LIMIT),
                (operation.deprecated or self._group.deprecated, _DEPRECATION),
                (operation.sunset or self._group.sunset, _SUNSET),
                (operation.successor or self._group.successor, _SUCCESSOR),
                (operation.idempotent, _REPLAYED),
            )
            if applies
            for name, text in fields.items()
        }

    def _response(self, status: int, answer: Response, headers: Mapping[str, str]) -> Object:
        written: Object = {
            "description": answer.description,
            "headers": self._components.headers(headers, versioned=bool(self._versions)),
        }
        content = self._content(status, answer)
        if content:
            written["content"] = content
        return written

    def _content(self, status: int, answer: Response) -> Object:
        if answer.schema is not None:
            shown = {} if answer.example is None else {"example": answer.example}
            return {media_type: {"schema": answer.schema, **shown} for media_type in answer.media_types}
        models = _models(answer)
        if models:
            return {
                name: self._media(self._schemas.of(model, "serialization"), answer.example)
                for name, model in models.items()
            }
        if status >= 400 and answer.media_types:
            return self._components.error_content(self._group.errors, status, answer.description)
        return {}

    def _media(self, schema: Object, example: Any) -> Object:
        if example is None and schema not in ({"type": "string"}, _BYTES):
            example = example_of(schema, self._schemas.components)
        return {"schema": schema} if example is None else {"schema": schema, "example": example}


def _reads_body(operation: Operation) -> bool:
    return operation.request is not None or bool(operation.consumes)


def _encoding(schema: Object, components: Mapping[str, Object]) -> Object:
    """Return the Encoding Objects of a form's files whose rule names media types."""
    model = components.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return {
        name: {"contentType": ", ".join(each["x-media-types"])}
        for name, field in model.get("properties", {}).items()
        for each in (field, field.get("items", {}), *field.get("anyOf", ()))
        if "x-media-types" in each
    }


_MULTIPART: Final = "multipart/form-data"
_BYTES: Final = {"type": "string", "format": "binary"}  # a body that the resource reads itself
_RATE_LIMIT: Final[Mapping[str, str]] = {
    "RateLimit": "Remaining requests of each limit, and seconds until its window ends.",
    "RateLimit-Policy": "The quota of each limit, and the seconds of its window.",
    "RateLimit-Limit": "Allowed requests of a client in the window.",
    "RateLimit-Remaining": "Remaining requests in the window.",
    "RateLimit-Reset": "Seconds until the window ends.",
}
_DEPRECATION: Final = {"Deprecation": "Since when it is deprecated: `@` and the seconds since 1970 (RFC 9745)."}
_SUNSET: Final = {"Sunset": "When it may be removed, as an HTTP date (RFC 8594)."}
_SUCCESSOR: Final = {"Link": "Its replacement, with the relation `successor-version` (RFC 5829)."}
_REPLAYED: Final = {"Idempotency-Replayed": "`true` if this is the response to an earlier request with the same key."}


def _parameter(declared: Parameter) -> Object:
    schema = with_int64(dict(declared.schema))
    examples = schema.pop("examples", ())
    if declared.place == "query" and schema.get("type", "string") == "string" and "enum" not in schema:
        schema.setdefault("pattern", _NO_NUL)  # the host refuses NUL in queries
    written: Object = {"name": declared.name, "in": declared.place}
    if declared.description:
        written["description"] = declared.description
    if declared.required or declared.place == "path":
        written["required"] = True
    if declared.allow_empty:
        written["allowEmptyValue"] = True
    written["schema"] = schema
    if examples:
        written["example"] = examples[0]
    return written


def _operation_id(path: str, method: str, operation: Operation) -> str:
    """Return an id that depends only on path and method, such as `listNotes` and `getNoteByNoteId`."""
    verb = _VERBS.get(method, "get")
    if method == "GET" and any(_is_list(answer) for status, answer in operation.responses.items() if status == 200):
        verb = "list"
    if method == "POST" and 201 in operation.responses:
        verb = "create"
    path = re.sub(r"/\{(\w+)\}", r"/by_\1", path)
    return verb + "".join(word[:1].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", path))


def _is_list(answer: Response) -> bool:
    return any(getattr(model, "__origin__", None) in (list, tuple, Sequence) for model in _models(answer).values())


def _make_unique(paths: Mapping[str, Object]) -> None:
    """Number operation ids that are the same because their paths differ only in punctuation."""
    seen: Counter[str] = Counter()
    for operation in (operation for item in paths.values() for operation in item.values()):
        name = operation["operationId"]
        seen[name] += 1
        if seen[name] > 1:
            operation["operationId"] = f"{name}_{seen[name]}"


def _plain(value: Any) -> Any:
    """Return a value converted to types that JSON and YAML can represent."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
