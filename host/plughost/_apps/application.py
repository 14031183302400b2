"""Build one Falcon app for each site: with its routes, error formats and common header fields (CONTRACT 2)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import falcon
import falcon.app
import falcon.media

from plughost._api.host import SiteView
from plughost._api.idempotency import store_of
from plughost._apps.edge import SAFE_METHODS, Edge, HostRefused, StreamStart, refuse_cross_site, site_middleware
from plughost._apps.idempotency import Idempotency
from plughost._apps.mounting import BEARER, SecurityCheck, common_fields, mount, require_role
from plughost._settings.models import AdminSite
from plughost.http._environ import ON_FAILURE
from plughost.http._errors import PROBLEM_DETAILS, Problem
from plughost.http._json.codec import JSONHandler
from plughost.http._request import Request
from plughost.http._response import Response, best_offer, close_stream, not_acceptable, status_code
from plughost.http._routing import RawPathRouter, find_group, raw_path
from plughost.stores._errors import StoreError, http_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import structlog

    from plughost._api.declarations import Middleware, RouteGroup
    from plughost._apps.mounted import MountedRoute
    from plughost._apps.mounting import MountedGroup
    from plughost._plugins.registry import PluginRecord, Registry
    from plughost._runtime.audit import Audit
    from plughost._runtime.request_log import RequestLog
    from plughost._settings.sources import Settings

# Not falcon.App: agents such as OpenTelemetry's replace it with a class that is not generic.
App = falcon.app.App[Request, Response]

_MAX_CONTENT_TYPE: Final = 1000  # Falcon parses one in quadratic time: seconds, for 64 KiB
_OF_THE_BODY: Final = ("Content-Encoding", "Content-Range", "Content-Disposition")
_OF_THE_RESULT: Final = ("Cache-Control", "Expires", "ETag", "Last-Modified", "Location")
_DEFAULT_DESCRIPTIONS: Final[Mapping[int, str]] = {
    404: "There is nothing at this address.",
    405: "This resource does not have that method; Allow names those that it has.",
    413: "The request body is larger than this resource accepts.",
    415: "This resource reads application/json.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteApp:
    """What one site serves in a generation.

    Attributes:
        prefixes: Maps a route group's prefix to its fallback.
        timed: Whether engines record when requests arrive.
    """

    groups: tuple[MountedGroup, ...]
    app: App
    prefixes: Mapping[str, MountedRoute]
    body_limit: int
    timed: bool
    view: SiteView


def build_site_apps(
    registry: Registry,
    middleware: Sequence[tuple[PluginRecord, Middleware]],
    settings: Settings,
    logger: structlog.stdlib.BoundLogger,
    request_log: RequestLog,
    *,
    dev: bool,
    audit: Audit,
) -> dict[str, SiteApp]:
    """Build what each site serves, by site name. Sites without an active plugin are left out."""
    mounts: dict[str, list[tuple[PluginRecord, RouteGroup]]] = {}
    for entry in registry.active():
        for group in entry.declared.groups:
            mounts.setdefault(entry.site_of(group), []).append((entry, group))
    outermost: list[object] = [request_log.access] if settings.host.log.access else []
    if any(entry.declared.observers for entry in registry.active()):
        outermost.append(request_log)
    timed = any(each.timings for entry in registry.active() for each in entry.declared.observers)
    innermost = [request_log.timer] if timed else []
    authenticator = next((each.authenticator for each in registry.active() if each.authenticator is not None), None)
    sites = {}
    for name in sorted(mounts):
        site = getattr(settings.host.sites, name)
        plugin_middleware = tuple(
            each for _, each in middleware if each.scope == "host" or (each.scope, each.site) == ("site", name)
        )
        all_middleware = (*site_middleware(site), *plugin_middleware)
        vary = tuple(header for each in all_middleware for header in each.vary)
        groups = tuple(_mount_group(entry, group, settings, middleware, vary) for entry, group in mounts[name])
        components = [*outermost, *(each.component for each in all_middleware)]
        role = site.required_role if isinstance(site, AdminSite) else None
        if role is not None:
            components.append(SecurityCheck((BEARER,), (role,), "admin", authenticator))
        sites[name] = SiteApp(
            groups=groups,
            app=build_app(
                groups, components, logger, vary, innermost, allowed_hosts=site.allowed_hosts, dev=dev, audit=audit
            ),
            timed=timed,
            prefixes={each.group.prefix: each.fallback for each in groups},
            body_limit=max(limit for each in groups for limit in each.body_limits),
            view=SiteView(
                groups=tuple((entry.name, require_role(group, role)) for entry, group in mounts[name]),
                middleware=plugin_middleware,
            ),
        )
    return sites


def _mount_group(
    entry: PluginRecord,
    group: RouteGroup,
    settings: Settings,
    middleware: Sequence[tuple[PluginRecord, Middleware]],
    vary: tuple[str, ...],
) -> MountedGroup:
    max_body_limit = entry.mount.body_limit
    limit = max_body_limit or group.body_limit or settings.host.body_limit
    own = [each for owner, each in middleware if owner is entry and each.scope == "plugin"]
    store = entry.context.stores.get(store_of(entry.name))
    authenticator = entry.authenticator or entry.context.authenticator
    return mount(
        entry.name,
        group,
        int(limit),
        own,
        vary,
        authenticator=authenticator,
        max_body_limit=max_body_limit,
        idempotency=Idempotency(store, entry.name, entry.context.now, authenticator) if store is not None else None,
    )


def build_app(
    groups: Sequence[MountedGroup],
    middleware: Sequence[object],
    logger: structlog.stdlib.BoundLogger,
    vary: Sequence[str] = (),
    innermost: Sequence[object] = (),
    *,
    allowed_hosts: Sequence[str] = (),
    dev: bool = False,
    audit: Audit | None = None,
) -> App:
    """Build the Falcon app of a site from groups without conflicts, and compile its router.

    `middleware` has Falcon components, outermost first; those of `innermost` run closest to the resources. All
    responses vary by `vary`. Without `allowed_hosts`, every well-formed `Host` is accepted. With `dev`, a responder
    that returns a value fails: Falcon would ignore it. `audit` records refusals.
    """
    routes = {template: mounted for group in groups for template, mounted in group.routes.items()}
    prefixes = {group.group.prefix: group.fallback for group in groups}
    router = RawPathRouter(routes, prefixes, dev=dev)
    edge = Edge(router.find, allowed_hosts)
    components: Any = [edge, *middleware, RouteMiddleware(common_fields(vary)), *innermost, StreamStart()]
    app: App = falcon.App(request_type=Request, response_type=Response, router=router, middleware=components)
    handler = JSONHandler()
    app.req_options.media_handlers = falcon.media.Handlers({falcon.MEDIA_JSON: handler})  # anything else is 415
    app.resp_options.media_handlers["application/json"] = handler
    for group in (mounted.group for mounted in groups):
        for route in group.routes:
            app.add_route(group.prefix + route.path, route.resource, suffix=route.suffix)
    handlers = _ErrorHandlers(logger, audit, prefixes)
    app.add_error_handler(Exception, handlers.on_exception)
    app.add_error_handler(StoreError, handlers.on_store_error)
    app.add_error_handler(falcon.HTTPError, handlers.on_http_error)
    router.find("/")  # compiles the routes; otherwise the first request would wait for it
    return app


class RouteMiddleware:
    """Applies what a request's operation declares, and its plugin's own middleware, as one Falcon middleware."""

    def __init__(self, common: Mapping[str, str]) -> None:
        self._common = common  # the header fields of responses outside of all route groups

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        environ = req.env
        mounted = req.mounted
        if mounted is None:
            return
        versions = mounted.versions
        if versions is not None:
            req.api_version = versions.choose(environ.get("HTTP_API_VERSION"))
        if req.method not in SAFE_METHODS:
            refuse_cross_site(req)
        operation = mounted.operations.get(req.method, mounted.undeclared)
        limit = operation.body_limit
        if environ.get("CONTENT_LENGTH") and (req.content_length or 0) > limit:
            raise falcon.HTTPContentTooLarge(
                description=f"The request body is larger than the {limit} bytes accepted here."
            )
        if len(environ.get("CONTENT_TYPE", "")) > _MAX_CONTENT_TYPE:
            raise falcon.HTTPUnsupportedMediaType(description="The Content-Type is too long.")
        accept = environ.get("HTTP_ACCEPT")
        if accept and accept != "*/*" and operation.produces and best_offer(accept, operation.produces) is None:
            raise not_acceptable(operation.produces)
        for process in operation.process_resource:
            process(req, resp, resource, params)
            if resp.complete:  # as in Falcon
                return

    def process_response(self, req: Request, resp: Response, resource: object, req_succeeded: bool) -> None:
        mounted = req.mounted
        if mounted is None:
            resp.add_common(self._common, req.request_id)
            return
        resp.add_common(mounted.common_fields[req.api_version], req.request_id)
        for process in mounted.operations.get(req.method, mounted.undeclared).process_response:
            process(req, resp, resource, req_succeeded)
        if type(resp.status) is not str:
            resp.status = falcon.code_to_http_status(resp.status)  # for OpenTelemetry's agent
        if resp.status != falcon.HTTP_200:  # an invalid status raises here, where Falcon's error handlers still run
            status_code(resp.status)
        resp.check_body()


class _ErrorHandlers:
    def __init__(
        self, logger: structlog.stdlib.BoundLogger, audit: Audit | None, prefixes: Mapping[str, MountedRoute]
    ) -> None:
        self._logger = logger
        self._audit = audit
        self._prefixes = prefixes

    def on_http_error(self, req: Request, resp: falcon.Response, error: falcon.HTTPError, _: object) -> None:
        """Replace the response by a Falcon error, in the format of the request's route group.

        Other headers stay, as in Falcon.
        """
        _delete_headers(resp, _OF_THE_BODY)
        # Middleware of the site may fail before routing.
        mounted = req.mounted or find_group(self._prefixes, raw_path(req.env))
        errors = mounted.errors if mounted is not None else PROBLEM_DETAILS
        if error.description is None:
            error.description = _DEFAULT_DESCRIPTIONS.get(error.status_code)
        problem = Problem.of(error, errors.validation_status)
        if req.trace_id is not None:
            problem = replace(problem, extensions={**problem.extensions, "trace_id": req.trace_id})
        resp.status = problem.status
        if error.headers is not None:
            resp.set_headers(error.headers)
        resp.data = errors.render(problem)
        resp.content_type = errors.media_type
        resp.media = None
        resp.text = None
        if resp.stream is not None:
            with suppress(Exception):  # the response is an error already
                close_stream(resp.stream)
            resp.stream = None
        status = error.status_code
        if status == 403 or (status == 401 and "HTTP_AUTHORIZATION" in req.env) or isinstance(error, HostRefused):
            self._audit_refusal(req, error)

    def _audit_refusal(self, req: Request, error: falcon.HTTPError) -> None:
        """Record a refusal, unless the plugin has done so."""
        audit = self._audit
        if audit is not None and not getattr(req.context, "audited", False):
            audit.record(
                "refusal",
                str(error.status_code),
                plugin=req.mounted.plugin if req.mounted is not None else None,
                who=audit.pseudonym(req.principal.name) if req.principal is not None else None,
                where=req.remote_addr,
                request_id=req.request_id,
                method=req.method,
                path=req.env.get("REQUEST_URI", req.path).partition("?")[0],
                reason=error.description,
            )

    def on_store_error(self, req: Request, resp: falcon.Response, error: StoreError, _: object) -> None:
        """Report an unavailable store or a conflict to the client. Handle other errors as unhandled exceptions."""
        _delete_headers(resp, _OF_THE_RESULT)
        http_equivalent = http_error(error)
        if http_equivalent.status_code >= 500 and http_equivalent.status_code != 503:
            self.on_exception(req, resp, error, _)
        else:
            self.on_http_error(req, resp, http_equivalent, _)

    def on_exception(self, req: Request, resp: falcon.Response, error: Exception, _: object) -> None:
        """Log an unhandled exception, and respond with 500 and the request id, without details."""
        _delete_headers(resp, _OF_THE_RESULT)
        self._logger.error(
            "unhandled exception",
            plugin=req.mounted.plugin if req.mounted is not None else None,
            request_id=req.request_id,
            method=req.method,
            path=req.path,
            exc_info=error,
        )
        if (on_failure := req.env.pop(ON_FAILURE, None)) is not None:
            on_failure()
        description = f"The server failed on this request; its log tells more under the id {req.request_id}."
        failure = falcon.HTTPInternalServerError(title="Internal Server Error", description=description)
        self.on_http_error(req, resp, failure, _)


def _delete_headers(resp: falcon.Response, names: Sequence[str]) -> None:
    for name in names:
        resp.delete_header(name)
