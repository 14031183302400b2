"""What plugins and operators see of a running host."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from plughost._api.errors import CertificateError
from plughost._api.hookspecs import documented_hooks
from plughost._api.host import PluginView
from plughost._plugins.environment import why_not_allowed
from plughost._runtime.sites import listeners_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plughost._api.declarations import Check
    from plughost._api.events import Events
    from plughost._api.host import CertificateInfo, HostControl, HostServices, Listener, Load, SiteView, Value
    from plughost._api.jobs import JobView
    from plughost._api.metrics import MetricView
    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.registry import PluginRecord
    from plughost._runtime.state import HostState

T = TypeVar("T")


class LiveView:
    """A running host, as its plugins see it: a `HostServices`."""

    def __init__(self, host: HostState, control: HostControl, preview: Callable[..., HostState]) -> None:
        self._host = host
        self._preview = preview
        self.control: HostControl = control
        self.events: Events = host.events
        self.lines: Events = host.lines
        self.data_dir: Path = host.settings.data_dir  # which no reload changes, nor the folder of the settings
        self.settings_dir: Path = host.settings.base
        self._objects: dict[tuple[str, str], Any] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}

    @property
    def hooks(self) -> Mapping[str, str]:
        return {name: documentation.partition("\n")[0] for name, documentation in documented_hooks().items()}

    @property
    def phase(self) -> str:
        return self._host.lifecycle.phase.value

    @property
    def unready(self) -> str | None:
        return self._host.lifecycle.unready

    @property
    def generation(self) -> int:
        return self._host.generation.number

    @property
    def started_at(self) -> datetime | None:
        return self._host.started_at

    @property
    def plugins(self) -> tuple[PluginView, ...]:
        return tuple(map(_view, self._host.generation.registry))

    @property
    def sites(self) -> Mapping[str, SiteView]:
        return {name: each.view for name, each in self._host.generation.sites.items()}

    @property
    def listeners(self) -> Mapping[Listener, int]:
        engines = self._host.serving.engines
        if not engines and self.phase == "starting":
            settings = self._host.settings
            return {each: each.port for site in self.sites for each in listeners_of(site, settings)}
        return {listener: engine.port for listener, engine in tuple(engines.items())}

    @property
    def in_flight(self) -> Mapping[str, int]:
        return {name: site.in_flight for name, site in tuple(self._host.serving.sites.items())}

    @property
    def in_flight_by_plugin(self) -> Mapping[str, int]:
        sites = tuple(self._host.serving.sites.values())
        counts = Counter(plugin for site in sites for plugin in site.plugins_in_flight())
        active = (record.name for record in self._host.active)
        return {name: counts[name] for name in dict.fromkeys(("", *active, *counts))}

    @property
    def loads(self) -> Mapping[str, Load]:
        return self._host.serving.dispatcher.loads()

    @property
    def store_figures(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        return {(store.plugin, store.name): store.figures for store in self._host.stores.values()}

    @property
    def checks(self) -> tuple[Check, ...]:
        generation = self._host.generation
        declared = (check for record in self._host.active for check in record.declared.checks)
        return (*declared, *generation.stores.checks, *generation.rate_limits.checks(), *self._host.jobs.checks())

    @property
    def metrics(self) -> tuple[MetricView, ...]:
        return tuple(view for record in self._host.active for view in record.context.metrics.views(record.name))

    def now(self) -> datetime:
        return self._host.clock.now()

    @property
    def jobs(self) -> tuple[JobView, ...]:
        return self._host.jobs.views()

    def why_not_allowed(self, distribution: str, version: str) -> str | None:
        return why_not_allowed(self._host.settings.host.allowed, distribution, version)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._host.generation.warnings

    @property
    def last_reload(self) -> ReloadReport | None:
        return self._host.last_reload

    def catch_up(self) -> None:
        self._host.request_log.catch_up()

    def preview(self, *, dev: bool = False) -> HostServices:
        return self._preview(self._host.settings, dev=dev).view

    def settings(self) -> list[Value]:
        return self._host.generation.setting_values()

    def certificate(self) -> CertificateInfo | None:
        from plughost._tls.certificates import describe  # noqa: PLC0415 - brings cryptography

        return None if self._host.tls is None else describe(self._host.tls)

    def keep(self, plugin: str, name: str, make: Callable[[], T]) -> T:
        key = plugin, name
        with self._locks.setdefault(key, threading.Lock()):
            if key not in self._objects:
                self._objects[key] = make()
            value: T = self._objects[key]
            return value

    def answer_query(self, plugin: str, name: str) -> Mapping[str, Any]:
        """Return the response to a query of a plugin's command, or an `error` if no active plugin has it."""
        handler = next((each.context.queries.get(name) for each in self._host.active if each.name == plugin), None)
        if handler is None:
            return {"error": f"no plugin {plugin} with the query {name} is active"}
        try:
            return handler()
        except BaseException as error:
            self._host.logger.error("query failed", plugin=plugin, query=name, exc_info=error)
            raise


def _view(record: PluginRecord) -> PluginView:
    return PluginView(
        name=record.name,
        distribution=record.installed.distribution,
        version=record.installed.version,
        state=record.state.value,
        reason=None if record.failure is None else str(record.failure),
        trouble=tuple(str(failure) for failure in record.trouble),
        requires=record.installed.requires,
        hooks=record.hooks,
        sites=tuple(record.sites),
        declared=record.declared,
        seconds=dict(record.seconds),
    )


def status_of(host: HostState) -> dict[str, Any]:
    """Return what `plughost status` shows, as JSON types."""
    started_at = host.started_at
    uptime = monotonic() - host.started if started_at is not None else None
    return {
        "pid": os.getpid(),
        "version": host.version,
        "phase": host.lifecycle.phase.value,
        "unready": host.lifecycle.unready,
        "dev": host.dev,
        "generation": host.generation.number,
        "started_at": started_at and started_at.isoformat(),
        "uptime_seconds": uptime and round(uptime, 1),
        "in_flight": host.view.in_flight,
        "listeners": [asdict(replace(each, port=port)) for each, port in host.view.listeners.items()],
        "certificate": _certificate_status(host),
        "plugins": [
            {
                "name": each.name,
                "version": each.version,
                "state": each.state,
                "reason": each.reason,
                "trouble": [*each.trouble, *_store_troubles(host, each.name)],
                "prefixes": [*each.declared.prefixes()],
            }
            for each in sorted(host.view.plugins, key=lambda each: each.name)
        ],
        "last_reload": host.last_reload and host.last_reload.as_plain(),
    }


def _store_troubles(host: HostState, plugin: str) -> Iterator[str]:
    for store in host.stores.values():
        if store.plugin == plugin and store.problem is not None:
            reason = str(store.problem).removeprefix(f"store {store.name}: ")
            yield f"the store {store.name} is not available: {reason}"


def _certificate_status(host: HostState) -> dict[str, Any] | None:
    """Return the certificate of the HTTPS listeners, and whether the one on disk differs."""
    if host.tls is None:
        return None
    from plughost._tls.certificates import certificate_in_use, describe  # noqa: PLC0415 - brings cryptography

    info = describe(host.tls)
    try:
        current = describe(*certificate_in_use(host.settings))
        on_disk = "the same" if current.sha256 == info.sha256 else f"another one, until {current.not_after:%Y-%m-%d}"
    except CertificateError as error:
        on_disk = f"none that can be read: {error}"
    return {
        "names": list(info.names),
        "not_after": info.not_after.isoformat(),
        "days_left": info.days_left,
        "sha256": info.sha256,
        "file": str(info.path),
        "on_disk": on_disk,
    }
