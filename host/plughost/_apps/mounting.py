"""Mount: compute what the request path needs of a route group, at build time.

What its operations declare of their requests is enforced before the resource is called (CONTRACT 2).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, Final

import falcon
from falcon.routing import CompiledRouter

from plughost._api.declarations import Operation
from plughost._apps.mounted import Mounted, Versions
from plughost._apps.parameters import Reader, RefusedError
from plughost.http._authentication import principal_of
from plughost.http._errors import Invalid, Violation

if TYPE_CHECKING:
    from plughost._api.declarations import Middleware, Principal, Route, RouteGroup
    from plughost.http._negotiation import Offers
    from plughost.http._request import Request

Authenticator = Callable[["Request"], "Principal | None"]
Enforce = Callable[["Request", dict[str, Any]], None]
ProcessResource = Callable[["Request", falcon.Response, object, dict[str, Any]], None]

BEARER: Final = "bearer"
_NO_STORE: Final = (("Cache-Control", "no-store"),)


def nobody(req: Request) -> None:
    """Find nobody behind any request: the authenticator where no plugin offers one."""


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


def compile_declared(
    route: Route, realm: str, authenticator: Authenticator, limits: Mapping[str, int]
) -> ProcessResource | None:
    """Return what enforces a route's security and parameters, as middleware does. None where it has none.

    It refuses a request that may not be answered, and hands the responder the values that it names as arguments. The
    largest of the limits, which are of bodies by method, holds for the route without this.
    """
    responders = CompiledRouter().map_http_methods(route.resource, suffix=route.suffix)
    by_method: dict[str, tuple[Enforce, ...]] = {}
    for method, operation in route.operations.items():
        enforced: list[Enforce] = []
        if limits[method] < max(limits.values()):
            enforced.append(_limit_of(limits[method]))
        if operation.security:
            enforced.append(Security(operation, realm, authenticator))
        if operation.consumes:
            enforced.append(_types_of(operation.consumes))
        if readers := [each for each in map(Reader, operation.parameters) if not each.takes_all]:
            enforced.append(_Parameters(readers, operation, inspect.signature(responders[method])))
        by_method[method] = tuple(enforced)
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])
    if not any(by_method.values()):
        return None

    def process_resource(req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        for enforce in by_method.get(req.method, ()):
            enforce(req, params)

    return process_resource


class _Parameters:
    """Reads parameters of an operation, and refuses all that are wrong at once."""

    def __init__(self, readers: Iterable[Reader], operation: Operation, signature: inspect.Signature) -> None:
        takes_all = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        self._readers = [(each, takes_all or each.argument in signature.parameters) for each in readers]
        absent = operation.responses.get(404)
        self._absent_has_body = absent is None or bool(absent.media_types)

    def __call__(self, req: Request, params: dict[str, Any]) -> None:
        violations = []
        absent = False
        for reader, is_taken in self._readers:
            try:
                value = reader.read(req, params)
            except RefusedError as refused:
                violations.append(Violation(reader.declared.name, str(refused)))
                absent = absent or reader.declared.refusal == 404
            else:
                if is_taken:
                    params[reader.argument] = value
        if absent and not self._absent_has_body:
            raise falcon.HTTPStatus(404)
        if absent:
            raise falcon.HTTPNotFound(description="; ".join(str(each) for each in violations))
        if violations:
            raise Invalid(violations)


def _limit_of(limit: int) -> Enforce:
    """Return what refuses a body that is too large for one operation, where another one of its route takes more."""

    def enforce(req: Request, params: dict[str, Any]) -> None:
        if (req.content_length or 0) > limit:
            raise body_too_large(limit)

    return enforce


def _types_of(media_types: Sequence[str]) -> Enforce:
    """Return what refuses a body of another media type than an operation reads."""
    accept = ", ".join(media_types)
    patterns = [each.lower() for each in media_types]
    exact = frozenset(patterns)
    beginnings = tuple("" if each == "*/*" else each.removesuffix("*") for each in patterns if each.endswith("/*"))

    def enforce(req: Request, params: dict[str, Any]) -> None:
        sent = (req.content_type or "").partition(";")[0].strip().lower()
        if sent not in exact and not sent.startswith(beginnings):
            raise falcon.HTTPUnsupportedMediaType(
                description=f"This resource reads {accept}.", headers={"Accept": accept}
            )

    return enforce


def body_too_large(limit: int) -> falcon.HTTPContentTooLarge:
    """Return the refusal of a body over a limit in bytes."""
    return falcon.HTTPContentTooLarge(description=f"The request body is larger than the {limit} bytes accepted here.")


class Security:
    """Lets a request in that comes with credentials of one of an operation's schemes."""

    def __init__(self, operation: Operation, realm: str, authenticator: Authenticator) -> None:
        self._schemes = frozenset(operation.security)
        self._roles = frozenset(operation.roles)
        self._authenticator = authenticator
        self._challenges = [_challenge(scheme, realm) for scheme in operation.security]
        self._bearer = _challenge(BEARER, realm)

    def __call__(self, req: Request, params: dict[str, Any]) -> None:
        scheme, _, credentials = (req.auth or "").partition(" ")
        if scheme.lower() != BEARER and scheme.lower() in self._schemes and credentials.strip():
            return  # which the resource verifies
        principal = principal_of(req, self._authenticator) if BEARER in self._schemes else None
        if principal is None:
            raise falcon.HTTPUnauthorized(
                description=f"This resource needs valid credentials: {' or '.join(sorted(self._schemes))}.",
                challenges=self._challenges,
                headers=_NO_STORE,
            )
        if self._roles and not self._roles & principal.roles:
            raise falcon.HTTPForbidden(
                description=f"This resource is open to the role {' or '.join(sorted(self._roles))} only.",
                headers=(*_NO_STORE, ("WWW-Authenticate", f'{self._bearer}, error="insufficient_scope"')),
            )


class RoleRequired:
    """Refuses a request to any resource of a site whose token lacks a role (RFC 6750)."""

    def __init__(self, authenticator: Authenticator, role: str) -> None:
        self._enforce = Security(Operation(summary="", security=(BEARER,), roles=(role,)), "admin", authenticator)

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Let a request through, or refuse it with 401 or 403."""
        self._enforce(req, params)


def needing(group: RouteGroup, role: str | None) -> RouteGroup:
    """Return a route group as it is on a site that wants a role, if any: each operation needs a token with one."""
    if role is None:
        return group

    def with_role(operation: Operation) -> Operation:
        return replace(operation, security=(BEARER,), roles=operation.roles or (role,))

    routes = (
        replace(route, operations={method: with_role(each) for method, each in route.operations.items()})
        for route in group.routes
    )
    return replace(group, routes=tuple(routes))


def _challenge(scheme: str, realm: str) -> str:
    """Return how to come back (RFC 9110, 11.6.1)."""
    challenge = f'{scheme.title()} realm="{realm}"'
    return f'{challenge}, charset="UTF-8"' if scheme == "basic" else challenge
