"""Mount: compute what the request path needs of a route group, at build time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import falcon

from plughost._apps.declared import compile_declared, nobody
from plughost._apps.mounted import Mounted, Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from plughost._api.declarations import Middleware, Operation, Route, RouteGroup
    from plughost._apps.declared import Authenticator
    from plughost.http._negotiation import Offers
    from plughost.http._request import Request


@dataclass(frozen=True, slots=True)
class MountedGroup:
    """A route group on a site.

    Attributes:
        group: Its declaration.
        routes: Full URI template to the mounted route.
        fallback: What stands for the paths below the prefix that no route matches.
    """

    group: RouteGroup
    routes: Mapping[str, Mounted]
    fallback: Mounted

    @property
    def largest_body(self) -> int:
        """Largest request body in bytes that any of its operations accepts."""
        return max(each.body_limit for each in (self.fallback, *self.routes.values()))


def mount(
    plugin: str,
    group: RouteGroup,
    body_limit: int,
    middleware: Sequence[Middleware] = (),
    vary: Sequence[str] = (),
    *,
    authenticator: Authenticator = nobody,
    most: int | None = None,
    idempotency: Callable[[Route], object] = lambda route: None,
) -> MountedGroup:
    """Work out what the request path needs of a route group.

    An operation that says nothing of its own takes bodies of `body_limit` bytes, and none takes more than `most`. The
    middleware is the plugin's own; `vary` is what all responses of the site vary by. What makes operations idempotent
    is the middleware that `idempotency` returns of a route.

    Raises:
        ValueError: A minor version is malformed, or a parameter's schema can't be enforced.
    """
    versions = Versions(group.versions) if group.versions else None
    components = [each.component for each in middleware]
    fallback = Mounted(
        plugin=plugin,
        template=f"{group.prefix}/*",
        errors=group.errors,
        versions=versions,
        common_fields=_by_version(versions, (*vary, *(name for each in middleware for name in each.vary))),
        body_limit=body_limit,
        produces={},
        process_resource=tuple(_methods(components, "process_resource")),
        process_response=tuple(_methods(reversed(components), "process_response")),
    )
    routes = {}
    for route in group.routes:
        produces = {method: _offers(operation) for method, operation in route.operations.items()}
        if "GET" in produces:
            produces.setdefault("HEAD", produces["GET"])
        template = group.prefix + route.path
        limits = _limits(route, body_limit, most)
        declared = compile_declared(route, group.realm or plugin, authenticator, limits)
        repeats = [idempotency(route)]
        before = (*fallback.process_resource, declared, *_methods(repeats, "process_resource"))
        after = (*_methods(repeats, "process_response"), _future(group, route), *fallback.process_response)
        routes[template] = replace(
            fallback,
            template=template,
            produces=produces,
            body_limit=max(limits.values(), default=body_limit),
            process_resource=tuple(filter(None, before)),
            process_response=tuple(filter(None, after)),
        )
    return MountedGroup(group, routes, fallback)


def common_fields(vary: Iterable[str] = ()) -> dict[str, str]:
    """Return the header fields that are the same in all responses, given what these vary by."""
    fields = {"x-content-type-options": "nosniff"}
    names = ", ".join(dict.fromkeys(vary))
    return fields | {"vary": names} if names else fields


def _by_version(versions: Versions | None, vary: Sequence[str]) -> dict[str | None, dict[str, str]]:
    """Return the header fields of all responses, by minor version."""
    if versions is None:
        return {None: common_fields(vary)}
    fields = common_fields(("API-Version", *vary))
    return {None: fields} | {version: fields | {"api-version": version} for version in versions.spoken}


def _offers(operation: Operation) -> Offers:
    """Return what a request's Accept may choose among. Nothing where a success has no body, as after a delete."""
    successes = [answer for status, answer in operation.responses.items() if 200 <= status < 300]
    has_body = not successes or any(answer.model is not None or answer.schema is not None for answer in successes)
    return operation.produces if has_body else ()


def _limits(route: Route, body_limit: int, most: int | None) -> dict[str, int]:
    """Return the largest request body of each method, in bytes."""
    limits = {method: operation.body_limit or body_limit for method, operation in route.operations.items()}
    return limits if most is None else {method: min(limit, most) for method, limit in limits.items()}


def _future(group: RouteGroup, route: Route) -> Callable[..., None] | None:
    """Return what says in a route's responses that its operations will go (RFC 9745, RFC 8594). None where none do."""
    by_method = {method: _future_fields(group, operation) for method, operation in route.operations.items()}
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])
    if not any(by_method.values()):
        return None

    def process_response(req: Request, resp: falcon.Response, *_: Any) -> None:
        for name, value in by_method.get(req.method, {}).items():
            resp.append_header(name, value)  # a response may have links of its own

    return process_response


def _future_fields(group: RouteGroup, operation: Operation) -> dict[str, str]:
    deprecated, sunset = operation.deprecated or group.deprecated, operation.sunset or group.sunset
    successor = operation.successor or group.successor
    fields = {}
    if deprecated is not None:
        fields["Deprecation"] = f"@{int(moment(deprecated).timestamp())}"
    if sunset is not None:
        fields["Sunset"] = falcon.dt_to_http(moment(sunset))
    if successor:
        fields["Link"] = f'<{successor}>; rel="successor-version"'
    return fields


def moment(day: date) -> datetime:
    """Return a time in UTC: of a date its beginning."""
    return day.astimezone(UTC) if isinstance(day, datetime) else datetime.combine(day, time(), UTC)


def _methods(components: Iterable[object], name: str) -> Iterable[Callable[..., Any]]:
    return (getattr(each, name) for each in components if hasattr(each, name))
