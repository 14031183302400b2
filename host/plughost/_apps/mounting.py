"""Mount route groups: compute at build time what the request path needs of them.

Requests are checked against what their operation declares before the resource is called (CONTRACT 2).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, Final

import falcon
from falcon.routing import CompiledRouter
from pydantic_core import PydanticCustomError

from plughost._apps.mounted import MountedOperation, MountedRoute, Versions
from plughost._apps.parameters import ParameterReader
from plughost.http._errors import Invalid, Violation
from plughost.http._request import principal_of

if sys.version_info >= (3, 14):
    from annotationlib import Format

if TYPE_CHECKING:
    from plughost._api.declarations import Middleware, Operation, Principal, RouteGroup
    from plughost.http._request import Request
    from plughost.http._response import Offers

Authenticator = Callable[["Request"], "Principal | None"] | None
Method = Callable[..., None]  # of a Falcon middleware

BEARER: Final = "bearer"
_realm = re.compile(r'\brealm\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s,"]+)', re.IGNORECASE)
_NO_STORE: Final = (("Cache-Control", "no-store"),)


@dataclass(frozen=True, slots=True)
class MountedGroup:
    """A route group on a site: its routes by full URI template, and the fallback for other paths below its prefix."""

    group: RouteGroup
    routes: Mapping[str, MountedRoute]
    fallback: MountedRoute

    @property
    def body_limits(self) -> Iterable[int]:
        declared = (each.body_limit for route in self.routes.values() for each in route.operations.values())
        return (self.fallback.undeclared.body_limit, *declared)


def mount(
    plugin: str,
    group: RouteGroup,
    body_limit: int,
    middleware: Sequence[Middleware] = (),
    vary: Sequence[str] = (),
    *,
    authenticator: Authenticator = None,
    max_body_limit: int | None = None,
    idempotency: object = None,
) -> MountedGroup:
    """Compute what the request path needs of a plugin's route group, which must be valid.

    `middleware` is the plugin's own, and `idempotency` that of its idempotent operations. All responses `vary` by some
    header fields. `body_limit`, in bytes, is for operations that declare none, and `max_body_limit` for all.
    """
    versions = Versions(group.versions) if group.versions else None
    components = [each.component for each in middleware]
    undeclared = MountedOperation(
        body_limit=body_limit,
        process_resource=_methods(components, "process_resource"),
        process_response=_methods(components[::-1], "process_response"),
    )
    fallback = MountedRoute(
        plugin=plugin,
        template=f"{group.prefix}/*",
        errors=group.errors,
        versions=versions,
        common_fields=_fields_by_version(versions, (*vary, *(name for each in middleware for name in each.vary))),
        operations={},
        undeclared=undeclared,
    )
    routes = {}
    for route in group.routes:
        responders = CompiledRouter().map_http_methods(route.resource, suffix=route.suffix)
        operations = {}
        for method, operation in route.operations.items():
            own = [idempotency] if operation.idempotent else []
            checks = _checks(operation, responders[method], group.realm or plugin, authenticator)
            limit = operation.body_limit or body_limit
            operations[method] = MountedOperation(
                body_limit=limit if max_body_limit is None else min(limit, max_body_limit),
                produces=offers_of(operation),
                process_resource=(*undeclared.process_resource, *checks, *_methods(own, "process_resource")),
                process_response=(
                    *_methods(own, "process_response"),
                    *_announce_deprecation(group, operation),
                    *undeclared.process_response,
                ),
            )
        if "GET" in operations:
            operations.setdefault("HEAD", operations["GET"])
        template = group.prefix + route.path
        routes[template] = replace(fallback, template=template, operations=operations)
    return MountedGroup(group, routes, fallback)


def common_fields(vary: Iterable[str] = ()) -> dict[str, str]:
    """Return the header fields that all responses have, with the fields that they vary by."""
    fields = {"x-content-type-options": "nosniff"}
    names = ", ".join(dict.fromkeys(vary))
    return fields | {"vary": names} if names else fields


def _fields_by_version(versions: Versions | None, vary: Sequence[str]) -> dict[str | None, dict[str, str]]:
    if versions is None:
        return {None: common_fields(vary)}
    fields = common_fields(("API-Version", *vary))
    return {None: fields} | {version: fields | {"api-version": version} for version in versions.supported}


def offers_of(operation: Operation) -> Offers:
    """Return the media types that Accept may choose from. Empty if a success has no body, as after a delete."""
    successes = [response for status, response in operation.responses.items() if 200 <= status < 300]
    has_body = not successes or any(response.model is not None or response.schema is not None for response in successes)
    return operation.produces if has_body else ()


def _announce_deprecation(group: RouteGroup, operation: Operation) -> Iterable[Method]:
    """Yield a middleware method that announces a deprecation (RFC 9745, RFC 8594), if there is one."""
    deprecated, sunset = operation.deprecated or group.deprecated, operation.sunset or group.sunset
    successor = operation.successor or group.successor
    fields = {}
    if deprecated is not None:
        fields["Deprecation"] = f"@{int(utc_datetime(deprecated).timestamp())}"
    if sunset is not None:
        fields["Sunset"] = falcon.dt_to_http(utc_datetime(sunset))
    if successor:
        fields["Link"] = f'<{successor}>; rel="successor-version"'

    def process_response(req: Request, resp: falcon.Response, *_: Any) -> None:
        for name, value in fields.items():
            resp.append_header(name, value)  # the response may have other links

    if fields:
        yield process_response


def utc_datetime(day: date) -> datetime:
    """Return a time in UTC; for a date, its first moment."""
    return day.astimezone(UTC) if isinstance(day, datetime) else datetime.combine(day, time(), UTC)


def _methods(components: Iterable[object], name: str) -> tuple[Method, ...]:
    return tuple(getattr(each, name) for each in components if hasattr(each, name))


def _checks(
    operation: Operation, responder: Callable[..., object], realm: str, authenticator: Authenticator
) -> Iterable[Method]:
    """Yield the middleware methods that check a request against what its operation declares."""
    if operation.security:
        yield SecurityCheck(operation.security, operation.roles, realm, authenticator).process_resource
    if operation.consumes:
        yield _media_type_check(operation.consumes)
    if readers := [each for each in map(ParameterReader, operation.parameters) if not each.accepts_any]:
        yield _parameter_check(readers, operation, signature_of(responder))


def signature_of(function: Callable[..., object], *, follow_wrapped: bool = True) -> inspect.Signature:
    """Return a function's signature. Its annotations may name what is only imported for type checkers."""
    if sys.version_info >= (3, 14):  # it evaluates annotations now, no longer when the function is defined
        return inspect.signature(function, follow_wrapped=follow_wrapped, annotation_format=Format.STRING)
    return inspect.signature(function, follow_wrapped=follow_wrapped)


def _parameter_check(readers: Iterable[ParameterReader], operation: Operation, signature: inspect.Signature) -> Method:
    """Return a check of parameters that reports all violations at once, and passes on those that a responder names."""
    has_kwargs = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    named = [(each, has_kwargs or each.argument in signature.parameters) for each in readers]
    not_found = operation.responses.get(404)

    def process_resource(req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        violations = []
        is_not_found = False
        for reader, is_argument in named:
            try:
                value = reader.read(req, params)
            except PydanticCustomError as error:
                violations.append(Violation(reader.declared.name, error.message()))
                is_not_found = is_not_found or reader.declared.refusal == 404
            else:
                if is_argument:
                    params[reader.argument] = value
        if is_not_found and not_found is not None and not not_found.media_types:
            raise falcon.HTTPStatus(404)
        if is_not_found:
            raise falcon.HTTPNotFound(description="; ".join(str(each) for each in violations))
        if violations:
            raise Invalid(violations)

    return process_resource


def _media_type_check(media_types: Sequence[str]) -> Method:
    accept = ", ".join(media_types)
    names = [each.lower() for each in media_types]
    exact = frozenset(names)
    prefixes = tuple("" if each == "*/*" else each.removesuffix("*") for each in names if each.endswith("/*"))

    def process_resource(req: Request, *_: Any) -> None:
        media_type = (req.content_type or "").partition(";")[0].strip().lower()
        if media_type not in exact and not media_type.startswith(prefixes):
            raise falcon.HTTPUnsupportedMediaType(
                description=f"This resource reads {accept}.", headers={"Accept": accept}
            )

    return process_resource


class SecurityCheck:
    """A middleware that only accepts requests with credentials for one of some schemes (RFC 6750)."""

    def __init__(self, schemes: Sequence[str], roles: Iterable[str], realm: str, authenticator: Authenticator) -> None:
        self._schemes = frozenset(schemes)
        self._roles = frozenset(roles)
        self._authenticator = authenticator
        self._challenges = [_challenge(scheme, realm) for scheme in schemes]
        self._bearer = _challenge(BEARER, realm)
        self._realm = f'realm="{realm}"'

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        scheme, _, credentials = (req.auth or "").partition(" ")
        if scheme.lower() != BEARER and scheme.lower() in self._schemes and credentials.strip():
            return  # the resource verifies these credentials
        try:
            principal = principal_of(req, self._authenticator) if BEARER in self._schemes else None
        except falcon.HTTPUnauthorized as error:
            fields = dict(error.headers or {})
            challenges = fields.get("WWW-Authenticate", self._bearer)
            # A resource has one realm, the group's, whichever authenticator refuses the token.
            error.headers = {**fields, "WWW-Authenticate": _realm.sub(lambda _: self._realm, challenges)}
            raise
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
