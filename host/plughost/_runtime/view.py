"""The host as its plugins see it. `plughost.HostView` documents the members."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from plughost._api.hookspecs import documented_hooks
from plughost._api.host import PluginView
from plughost._plugins.allowed import why_not_allowed
from plughost._runtime.sites import listeners_of

if TYPE_CHECKING:
    from datetime import datetime
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

    def __init__(self, host: HostState) -> None:
        self._host = host
        self.control: HostControl = host
        self.events: Events = host.events
        self.lines: Events = host.lines
        self._objects: dict[tuple[str, str], Any] = {}
        self._queries: dict[tuple[str, str], Callable[[], Mapping[str, Any]]] = {}
        self._lock = threading.Lock()

    @property
    def hooks(self) -> Mapping[str, str]:
        return {name: documentation.partition("\n")[0] for name, documentation in documented_hooks().items()}

    @property
    def phase(self) -> str:
        return self._host.phase.value

    @property
    def unready(self) -> str | None:
        return self._host.unready

    @property
    def generation(self) -> int:
        return self._host.number

    @property
    def started_at(self) -> datetime | None:
        return self._host.started_at

    @property
    def plugins(self) -> tuple[PluginView, ...]:
        return tuple(map(_view, self._host.records))

    @property
    def sites(self) -> Mapping[str, SiteView]:
        generation = self._host.generation
        return {} if generation is None else {name: each.view for name, each in generation.sites.items()}

    @property
    def listeners(self) -> Mapping[Listener, int]:
        engines = self._host.serving.engines
        if not engines and self.phase == "starting":
            settings = self._host.settings
            return {each: each.port for site in self.sites for each in listeners_of(site, settings)}
        return {listener: engine.port for listener, engine in engines.items()}

    @property
    def in_flight(self) -> Mapping[str, int]:
        return {name: site.in_flight for name, site in self._host.serving.sites.items()}

    @property
    def in_flight_by_plugin(self) -> Mapping[str, int]:
        counts = Counter(plugin for site in self._host.serving.sites.values() for plugin in site.plugins_in_flight())
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
        if generation is None:
            return ()
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

    @property
    def data_dir(self) -> Path:
        return self._host.settings.data_dir

    @property
    def settings_dir(self) -> Path:
        return self._host.settings.base

    def why_not_allowed(self, distribution: str, version: str) -> str | None:
        return why_not_allowed(self._host.settings.host.allowed, distribution, version)

    @property
    def warnings(self) -> tuple[str, ...]:
        generation = self._host.generation
        return () if generation is None else generation.warnings

    @property
    def last_reload(self) -> ReloadReport | None:
        return self._host.last_reload

    def catch_up(self) -> None:
        self._host.request_log.catch_up()

    def preview(self, *, dev: bool = False) -> HostServices:
        return self._host.preview_host(self._host.settings, dev=dev).view

    def settings(self) -> list[Value]:
        generation = self._host.generation
        return list(self._host.settings.values({})) if generation is None else generation.setting_values()

    def certificate(self) -> CertificateInfo | None:
        from plughost._tls.certificates import describe  # noqa: PLC0415 - brings cryptography

        return None if self._host.tls is None else describe(self._host.tls)

    def keep(self, plugin: str, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            if (plugin, name) not in self._objects:
                self._objects[plugin, name] = make()
            value: T = self._objects[plugin, name]
            return value

    def add_query(self, plugin: str, name: str, handler: Callable[[], Mapping[str, Any]]) -> None:
        self._queries[plugin, name] = handler

    def answer_query(self, plugin: str, name: str) -> Mapping[str, Any]:
        """Return the response to a query of a plugin's command.

        Raises:
            LookupError: The plugin does not serve, or has no such query.
        """
        handler = self._queries.get((plugin, name))
        if handler is None or plugin not in {record.name for record in self._host.active}:
            message = f"no plugin {plugin} with the query {name} is active"
            raise LookupError(message)
        return handler()


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
