"""Mount route groups: compute at build time what the request path needs of them.

Requests are checked against what their operation declares before the resource is called (CONTRACT 2).
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
from plughost._apps.mounted import MountedRoute, Versions
from plughost._apps.parameters import InvalidValueError, ParameterReader
from plughost.http._authentication import principal_of
from plughost.http._errors import Invalid, Violation

if TYPE_CHECKING:
    from plughost._api.declarations import Middleware, Principal, Route, RouteGroup
    from plughost.http._negotiation import Offers
    from plughost.http._request import Request

Authenticator = Callable[["Request"], "Principal | None"]
Check = Callable[["Request", dict[str, Any]], None]
ProcessResource = Callable[["Request", falcon.Response, object, dict[str, Any]], None]

BEARER: Final = "bearer"
_NO_STORE: Final = (("Cache-Control", "no-store"),)


def no_principal(req: Request) -> None:
    """Return no principal: the authenticator if no plugin offers one."""


@dataclass(frozen=True, slots=True)
class MountedGroup:
    """A route group on a site.

    Attributes:
        group: Its declaration.
        routes: Maps a full URI template to the mounted route.
        fallback: The stand-in for paths below the prefix that no route matches.
    """

    group: RouteGroup
    routes: Mapping[str, MountedRoute]
    fallback: MountedRoute

    @property
    def largest_body(self) -> int:
        """Largest request body that any of its operations accepts, in bytes."""
        return max(each.body_limit for each in (self.fallback, *self.routes.values()))


def mount(
    plugin: str,
    group: RouteGroup,
    body_limit: int,
    middleware: Sequence[Middleware] = (),
    vary: Sequence[str] = (),
    *,
    authenticator: Authenticator = no_principal,
    max_body_limit: int | None = None,
    idempotency: Callable[[Route], object] = lambda route: None,
) -> MountedGroup:
    """Compute what the request path needs of a route group.

    Args:
        plugin: The plugin's name.
        group: The declaration.
        body_limit: Largest request body in bytes for operations that declare no limit.
        middleware: The plugin's own middleware.
        vary: Header fields that all responses of the site vary by.
        authenticator: Finds the principal of a request.
        max_body_limit: Largest request body in bytes for all operations.
        idempotency: Returns the middleware of a route's idempotent operations, if it has any.

    Raises:
        ValueError: A minor version is malformed, or a parameter's schema can't be enforced.
    """
    versions = Versions(group.versions) if group.versions else None
    components = [each.component for each in middleware]
    fallback = MountedRoute(
        plugin=plugin,
        template=f"{group.prefix}/*",
        errors=group.errors,
        versions=versions,
        common_fields=_fields_by_version(versions, (*vary, *(name for each in middleware for name in each.vary))),
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
        limits = _body_limits(route, body_limit, max_body_limit)
        checks = compile_checks(route, group.realm or plugin, authenticator, limits)
        idempotent = [idempotency(route)]
        before = (*fallback.process_resource, checks, *_methods(idempotent, "process_resource"))
        after = (
            *_methods(idempotent, "process_response"),
            _announce_deprecation(group, route),
            *fallback.process_response,
        )
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
    """Return the header fields of all responses, which vary by these fields."""
    fields = {"x-content-type-options": "nosniff"}
    names = ", ".join(dict.fromkeys(vary))
    return fields | {"vary": names} if names else fields


def _fields_by_version(versions: Versions | None, vary: Sequence[str]) -> dict[str | None, dict[str, str]]:
    """Return the header fields of all responses, by minor version."""
    if versions is None:
        return {None: common_fields(vary)}
    fields = common_fields(("API-Version", *vary))
    return {None: fields} | {version: fields | {"api-version": version} for version in versions.supported}


def _offers(operation: Operation) -> Offers:
    """Return the media types that Accept may choose from. Empty if a success has no body, as after a delete."""
    successes = [response for status, response in operation.responses.items() if 200 <= status < 300]
    has_body = not successes or any(response.model is not None or response.schema is not None for response in successes)
    return operation.produces if has_body else ()


def _body_limits(route: Route, body_limit: int, max_body_limit: int | None) -> dict[str, int]:
    """Return the largest request body of each method, in bytes."""
    limits = {method: operation.body_limit or body_limit for method, operation in route.operations.items()}
    if max_body_limit is None:
        return limits
    return {method: min(limit, max_body_limit) for method, limit in limits.items()}


def _announce_deprecation(group: RouteGroup, route: Route) -> Callable[..., None] | None:
    """Return a middleware method that announces deprecations (RFC 9745, RFC 8594). None if there are none."""
    by_method = {method: _deprecation_headers(group, operation) for method, operation in route.operations.items()}
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])
    if not any(by_method.values()):
        return None

    def process_response(req: Request, resp: falcon.Response, *_: Any) -> None:
        for name, value in by_method.get(req.method, {}).items():
            resp.append_header(name, value)  # the response may have other links

    return process_response


def _deprecation_headers(group: RouteGroup, operation: Operation) -> dict[str, str]:
    deprecated, sunset = operation.deprecated or group.deprecated, operation.sunset or group.sunset
    successor = operation.successor or group.successor
    fields = {}
    if deprecated is not None:
        fields["Deprecation"] = f"@{int(utc_datetime(deprecated).timestamp())}"
    if sunset is not None:
        fields["Sunset"] = falcon.dt_to_http(utc_datetime(sunset))
    if successor:
        fields["Link"] = f'<{successor}>; rel="successor-version"'
    return fields


def utc_datetime(day: date) -> datetime:
    """Return a time in UTC; for a date, its first moment."""
    return day.astimezone(UTC) if isinstance(day, datetime) else datetime.combine(day, time(), UTC)


def _methods(components: Iterable[object], name: str) -> Iterable[Callable[..., Any]]:
    return (getattr(each, name) for each in components if hasattr(each, name))


def compile_checks(
    route: Route, realm: str, authenticator: Authenticator, limits: Mapping[str, int]
) -> ProcessResource | None:
    """Return a middleware method that checks requests against a route's declarations. None if there are no checks.

    It refuses invalid requests, and passes parameters to the responder as the arguments that it names. `limits` maps
    methods to body limits in bytes. The largest of them is enforced elsewhere, for the whole route.
    """
    responders = CompiledRouter().map_http_methods(route.resource, suffix=route.suffix)
    by_method: dict[str, tuple[Check, ...]] = {}
    for method, operation in route.operations.items():
        checks: list[Check] = []
        if limits[method] < max(limits.values()):
            checks.append(_body_limit_check(limits[method]))
        if operation.security:
            checks.append(SecurityCheck(operation, realm, authenticator))
        if operation.consumes:
            checks.append(_media_type_check(operation.consumes))
        if readers := [each for each in map(ParameterReader, operation.parameters) if not each.accepts_any]:
            checks.append(_ParameterCheck(readers, operation, inspect.signature(responders[method])))
        by_method[method] = tuple(checks)
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])
    if not any(by_method.values()):
        return None

    def process_resource(req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        for check in by_method.get(req.method, ()):
            check(req, params)

    return process_resource


class _ParameterCheck:
    """Reads the parameters of an operation, and reports all violations at once."""

    def __init__(self, readers: Iterable[ParameterReader], operation: Operation, signature: inspect.Signature) -> None:
        has_kwargs = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        self._readers = [(each, has_kwargs or each.argument in signature.parameters) for each in readers]
        not_found = operation.responses.get(404)
        self._not_found_has_body = not_found is None or bool(not_found.media_types)

    def __call__(self, req: Request, params: dict[str, Any]) -> None:
        violations = []
        is_not_found = False
        for reader, is_argument in self._readers:
            try:
                value = reader.read(req, params)
            except InvalidValueError as error:
                violations.append(Violation(reader.declared.name, str(error)))
                is_not_found = is_not_found or reader.declared.refusal == 404
            else:
                if is_argument:
                    params[reader.argument] = value
        if is_not_found and not self._not_found_has_body:
            raise falcon.HTTPStatus(404)
        if is_not_found:
            raise falcon.HTTPNotFound(description="; ".join(str(each) for each in violations))
        if violations:
            raise Invalid(violations)


def _body_limit_check(limit: int) -> Check:
    """Return a check of the body's size, for operations with a smaller limit than others of their route."""

    def check(req: Request, params: dict[str, Any]) -> None:
        if (req.content_length or 0) > limit:
            raise body_too_large(limit)

    return check


def _media_type_check(media_types: Sequence[str]) -> Check:
    """Return a check that refuses bodies of other media types than the operation reads."""
    accept = ", ".join(media_types)
    names = [each.lower() for each in media_types]
    exact = frozenset(names)
    prefixes = tuple("" if each == "*/*" else each.removesuffix("*") for each in names if each.endswith("/*"))

    def check(req: Request, params: dict[str, Any]) -> None:
        media_type = (req.content_type or "").partition(";")[0].strip().lower()
        if media_type not in exact and not media_type.startswith(prefixes):
            raise falcon.HTTPUnsupportedMediaType(
                description=f"This resource reads {accept}.", headers={"Accept": accept}
            )

    return check


def body_too_large(limit: int) -> falcon.HTTPContentTooLarge:
    """Return the error for a body above a limit in bytes."""
    return falcon.HTTPContentTooLarge(description=f"The request body is larger than the {limit} bytes accepted here.")


class SecurityCheck:
    """Accepts requests with credentials for one of an operation's schemes, and refuses others."""

    def __init__(self, operation: Operation, realm: str, authenticator: Authenticator) -> None:
        self._schemes = frozenset(operation.security)
        self._roles = frozenset(operation.roles)
        self._authenticator = authenticator
        self._challenges = [_challenge(scheme, realm) for scheme in operation.security]
        self._bearer = _challenge(BEARER, realm)

    def __call__(self, req: Request, params: dict[str, Any]) -> None:
        scheme, _, credentials = (req.auth or "").partition(" ")
        if scheme.lower() != BEARER and scheme.lower() in self._schemes and credentials.strip():
            return  # the resource verifies these credentials
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
    """Refuses requests to a site if their token lacks a role (RFC 6750)."""

    def __init__(self, authenticator: Authenticator, role: str) -> None:
        self._check = SecurityCheck(Operation(summary="", security=(BEARER,), roles=(role,)), "admin", authenticator)

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Refuse a request with 401 or 403 unless its token has the role."""
        self._check(req, params)


def require_role(group: RouteGroup, role: str | None) -> RouteGroup:
    """Return a route group whose operations all require a token, and a role; the same group if `role` is None."""
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
    """Return a challenge for `WWW-Authenticate` (RFC 9110, 11.6.1)."""
    challenge = f'{scheme.title()} realm="{realm}"'
    return f'{challenge}, charset="UTF-8"' if scheme == "basic" else challenge
