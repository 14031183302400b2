"""Assemble: one Falcon app per site, from what its plugins declare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from plughost._api.host import SiteView
from plughost._api.idempotency import store_of
from plughost._apps.application import build_app
from plughost._apps.declared import RoleRequired, needing, nobody
from plughost._apps.idempotency import compile_idempotency
from plughost._apps.middleware import site_middleware
from plughost._apps.mounting import mount
from plughost._runtime.audit import audit_of
from plughost._settings.models import AdminSite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import structlog

    from plughost._api.declarations import Middleware, RouteGroup
    from plughost._apps.application import App
    from plughost._apps.mounted import Mounted
    from plughost._apps.mounting import MountedGroup
    from plughost._plugins.registry import Entry, Registry
    from plughost._runtime.request_log import RequestLog
    from plughost._settings.sources import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteApp:
    """What one site serves in a generation.

    Attributes:
        groups: The route groups mounted on it.
        app: Its Falcon app.
        prefixes: A route group's prefix to what stands for all below it.
        body_limit: Largest request body in bytes that any of its groups accepts.
        timed: Whether it is noted when requests were there.
        view: What plugins may see of it.
    """

    groups: tuple[MountedGroup, ...]
    app: App
    prefixes: Mapping[str, Mounted]
    body_limit: int
    timed: bool
    view: SiteView


def assemble(
    registry: Registry,
    middleware: Sequence[tuple[Entry, Middleware]],
    settings: Settings,
    logger: structlog.stdlib.BoundLogger,
    request_log: RequestLog,
    *,
    dev: bool,
) -> dict[str, SiteApp]:
    """Return what each site serves, by name. A site without an active plugin is missing."""
    mounts: dict[str, list[tuple[Entry, RouteGroup]]] = {}
    for entry in registry.active():
        for group in entry.declared.groups:
            mounts.setdefault(entry.site_of(group), []).append((entry, group))
    outermost: list[object] = [request_log.access] if settings.host.log.access else []
    if any(entry.declared.observers for entry in registry.active()):
        outermost.append(request_log)
    timed = any(each.timings for entry in registry.active() for each in entry.declared.observers)
    innermost = [request_log.timer] if timed else []
    principals = next((each.authenticator for each in registry.active() if each.authenticator is not None), nobody)
    audit = audit_of(settings, logger)
    sites = {}
    for name in sorted(mounts):
        own = getattr(settings.host.sites, name)
        around = tuple(
            each for _, each in middleware if each.scope == "host" or (each.scope, each.site) == ("site", name)
        )
        all_around = (*site_middleware(own), *around)
        vary = tuple(header for each in all_around for header in each.vary)
        groups = tuple(_mounted(entry, group, settings, middleware, vary) for entry, group in mounts[name])
        components = [*outermost, *(each.component for each in all_around)]
        role = own.required_role if isinstance(own, AdminSite) else None
        if role is not None:
            components.append(RoleRequired(principals, role))
        sites[name] = SiteApp(
            groups=groups,
            app=build_app(
                groups, components, logger, vary, innermost, allowed_hosts=own.allowed_hosts, dev=dev, audit=audit
            ),
            timed=timed,
            prefixes={each.group.prefix: each.fallback for each in groups},
            body_limit=max(each.largest_body for each in groups),
            view=SiteView(
                groups=tuple((entry.name, needing(group, role)) for entry, group in mounts[name]), middleware=around
            ),
        )
    return sites


def _mounted(
    entry: Entry,
    group: RouteGroup,
    settings: Settings,
    middleware: Sequence[tuple[Entry, Middleware]],
    vary: tuple[str, ...],
) -> MountedGroup:
    most = entry.mount.body_limit
    limit = most or group.body_limit or settings.host.body_limit
    own = [each for owner, each in middleware if owner is entry and each.scope == "plugin"]
    authenticator = entry.authenticator or entry.context.authenticator or nobody
    store = entry.context.stores.get(store_of(entry.name))
    idempotency = partial(compile_idempotency, plugin=entry.name, store=store, now=entry.context.now)
    return mount(
        entry.name, group, int(limit), own, vary, authenticator=authenticator, most=most, idempotency=idempotency
    )
