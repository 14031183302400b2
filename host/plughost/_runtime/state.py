"""The state of a host, and what trusted plugins may do to it. Other modules use the host as a `HostState`."""

from __future__ import annotations

import enum
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from plughost._api.errors import CommandError
from plughost._api.events import Events
from plughost._runtime.audit import audit_of
from plughost._settings.editing import edit_setting, editing, preview_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    import structlog

    from plughost._api.host import HostServices, SettingChange
    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.environment import Environment
    from plughost._plugins.registry import PluginRecord
    from plughost._plugins.snapshots import Snapshot
    from plughost._runtime.generation import Generation
    from plughost._runtime.jobs import Clock, Jobs
    from plughost._runtime.request_log import RequestLog
    from plughost._runtime.sites import Serving
    from plughost._settings.sources import Settings
    from plughost._tls.keypairs import PreparedTLS
    from plughost.stores import OpenStore


class Phase(enum.StrEnum):
    """The phase of a host. While leaving, it serves everything but is not ready."""

    STARTING = "starting"
    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"
    STOPPED = "stopped"


class HostState:
    """The state of a host, and a `HostControl`, which documents its methods, for trusted plugins.

    Attributes:
        view: The host as its plugins see it.
        events: Events of the host, for subscribers.
        lines: The lines of its log, for subscribers.
        request_log: Records requests for observers.
        jobs: The jobs of its plugins.
        generation: The generation that it serves. None before `start`.
        number: The number of that generation, from 1.
        serving: Its open sites.
        imported: Snapshots, from before the import, of the distributions that this process has imported, by normalised
            name.
        attempted: The same for the last build, which may have been refused.
        drain_seconds: The seconds for which the stop waited for requests in flight.
        drained_at: The `time.monotonic()` at which an operator drained it. None if not drained.
        handed_over: Whether a successor process serves. This one then stays ready until it ends.
    """

    view: HostServices
    settings: Settings
    dev: bool
    logger: structlog.stdlib.BoundLogger
    lines: Events
    request_log: RequestLog
    jobs: Jobs
    serving: Serving

    def __init__(self, without: Collection[str], clock: Clock) -> None:
        self._without: tuple[str, ...] = tuple(without)
        self.events: Events = Events()
        self.clock: Clock = clock
        self.phase = Phase.STARTING
        self.generation: Generation | None = None
        self.number = 0
        self.started_at: datetime | None = None
        self.imported: dict[str, Snapshot] = {}
        self.attempted: dict[str, Snapshot] = {}
        self.last_reload: ReloadReport | None = None
        self.drain_seconds: float = 0.0
        self.drained_at: float | None = None
        self.handed_over = False

    @abstractmethod
    def environment(self) -> Environment:
        """Discover what is installed now."""

    @abstractmethod
    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Reload: see `HostControl.reload`."""

    @abstractmethod
    def preview_host(self, settings: Settings, *, dev: bool = False) -> HostState:
        """Return a host with other settings that opens nothing, to show what it would serve."""

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """The records of all installed plugins. Empty before `start`."""
        return () if self.generation is None else self.generation.registry.records

    @property
    def active(self) -> tuple[PluginRecord, ...]:
        """The records of the active plugins."""
        return () if self.generation is None else self.generation.registry.active()

    @property
    def ports(self) -> Mapping[tuple[str, str], int]:
        """The TCP ports of the open listeners, by site and scheme."""
        return {(listener.site, listener.scheme): engine.port for listener, engine in self.serving.engines.items()}

    @property
    def tls(self) -> PreparedTLS | None:
        """The certificate of its HTTPS listeners. None if none is open."""
        return next(iter(self.serving.certificates.values()), None)

    @property
    def unready(self) -> str | None:
        """Why the host is not ready. None if it is."""
        if self.handed_over:
            return None
        if self.phase is Phase.LEAVING:
            return "it was asked to stop, and serves on for shutdown_delay first"
        if self.phase is not Phase.SERVING:
            return f"it is {self.phase}"
        return None if self.drained_at is None else "plughost drain took it out of service; --undo puts it back"

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The open stores of all plugins, by name."""
        return {} if self.generation is None else self.generation.stores

    @property
    def logins(self) -> Mapping[str, Callable[[], str]]:
        """Functions that issue a token, by demo account."""
        return {name: issue for record in self.active for name, issue in record.context.logins.items()}

    def switch(self, name: str, *, enabled: bool, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Enable or disable a plugin in the settings file, and reload."""
        with editing(self.settings) as settings:
            host = settings.host
            installed = self.environment().plugins
            if name not in {each.name for each in installed}:
                raise CommandError(f"No plugin named {name} is installed.")
            if enabled and name in self._without:
                raise CommandError(f"{name} is skipped by --without; start the host without that.")
            if not enabled and name in host.required:
                raise CommandError(f"The setting required names {name}; remove it there first.")
            others = [each for each in host.disabled if each != name]
            accept = [] if enabled else [each.name for each in installed if name in each.requires]
            return self._change_and_reload("disabled", others if enabled else [*others, name], accept, origin)

    def preview_setting(self, key: str, value: object) -> SettingChange:
        """Return what `change_setting` would do to the settings file."""
        return preview_setting(self.settings, self._models, key, value)

    def change_setting(self, key: str, value: object, *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Change a setting in the settings file, and reload."""
        with editing(self.settings):
            return self._change_and_reload(key, value, (), origin)

    def purge(self, name: str, *, origin: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Delete the data of a plugin's stores."""
        from plughost.stores import StoreError, purge  # noqa: PLC0415 - brings every store's code

        if name in {store.plugin for store in self.stores.values()}:
            raise CommandError(f"{name} serves its stores. Disable it first.")
        stores = self.preview_host(self.settings.with_all_enabled()).stores
        own = [store for store in stores.values() if store.plugin == name]
        if not own:
            raise CommandError(f"No installed plugin named {name} has a store.")
        for store in own:
            try:
                with audit_of(self.settings, self.logger).recording("purge", target=[store.name], **(origin or {})):
                    purge(store)
            except StoreError as error:
                raise CommandError(f"The store {store.name} was not dropped: {error}") from error
        return tuple(store.name for store in own)

    def _change_and_reload(
        self, key: str, value: object, accept: Collection[str], origin: Mapping[str, Any] | None
    ) -> ReloadReport:
        """Change a setting in the file and reload. If that is refused, restore the file."""
        edit = edit_setting(self.settings, self._models, key, value)
        report = self.reload(accept, origin=origin)
        if report.problems:
            edit.undo()
        return report

    @property
    def _models(self) -> Mapping[str, Any]:
        """The settings of plugins: see `Generation.models`."""
        return {} if self.generation is None else self.generation.models
