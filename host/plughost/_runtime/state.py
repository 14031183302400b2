"""What a host is at the moment, and what trusted plugins may do to it: all of it that others use."""

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
    from plughost._plugins.registry import Entry
    from plughost._plugins.snapshots import Snapshot
    from plughost._runtime.generation import Generation
    from plughost._runtime.jobs import Clock, Jobs
    from plughost._runtime.request_log import RequestLog
    from plughost._runtime.sites import Serving
    from plughost._settings.sources import Settings
    from plughost._tls.keypairs import PreparedTLS
    from plughost.stores import OpenStore


class Phase(enum.StrEnum):
    """Where a host is in its life. While leaving, it serves everything, and is not ready."""

    STARTING = "starting"
    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"
    STOPPED = "stopped"


class HostState:
    """The state of a host, and how trusted plugins control it: a `HostControl`, which tells more of these methods.

    Attributes:
        view: What its plugins may see of it.
        events: What happens on it, for plugins that watch.
        lines: The lines of its log, as they are written, for plugins that watch.
        request_log: The requests that it answered, on their way to the plugins that observe them.
        jobs: What its plugins do by the clock.
        generation: What it serves. None before `start`.
        number: The number of that generation, from 1.
        serving: Its open sites.
        imported: The distributions that this process has imported, as they were on disk when that began, by normalised
            name.
        attempted: The same of the last build, which may have been refused.
        drain_seconds: Seconds that the stop has waited for requests in flight.
        drained_at: When it was taken out of service by hand, of `time.monotonic()`. None where it was not.
        handed_over: Whether another process serves in its place. So the host does not leave, and is ready to the end.
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
        """Look at what is installed now."""

    @abstractmethod
    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Take up what changed."""

    @abstractmethod
    def beside(self, settings: Settings, *, dev: bool = False) -> HostState:
        """Return a host with other settings that opens nothing, to look at what it would serve."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every installed plugin and what became of it. Empty before `start`."""
        return () if self.generation is None else self.generation.registry.entries

    @property
    def active(self) -> tuple[Entry, ...]:
        """The plugins that serve."""
        return () if self.generation is None else self.generation.registry.active()

    @property
    def ports(self) -> Mapping[tuple[str, str], int]:
        """The TCP ports of the open listeners, by site and scheme."""
        return {(listener.site, listener.scheme): engine.port for listener, engine in self.serving.engines.items()}

    @property
    def tls(self) -> PreparedTLS | None:
        """The certificate that its HTTPS listeners show. None where none is open."""
        return next(iter(self.serving.shown.values()), None)

    @property
    def unready(self) -> str | None:
        """Why the host is not ready. None where it is."""
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
        """What issues a token for each demo account."""
        return {name: issue for entry in self.active for name, issue in entry.context.logins.items()}

    def switch(self, name: str, *, enabled: bool, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Enable or disable a plugin in the settings file, and take that up."""
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
            return self._take_up("disabled", others if enabled else [*others, name], accept, origin)

    def preview_setting(self, key: str, value: object) -> SettingChange:
        """Return what `change_setting` would do to the settings file."""
        return preview_setting(self.settings, self._models, key, value)

    def change_setting(self, key: str, value: object, *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Change a setting in the settings file, and take that up."""
        with editing(self.settings):
            return self._take_up(key, value, (), origin)

    def purge(self, name: str, *, origin: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Drop all that a plugin keeps in its stores."""
        from plughost.stores import StoreError, purge  # noqa: PLC0415 - brings every store's code

        if name in {store.plugin for store in self.stores.values()}:
            raise CommandError(f"{name} serves its stores. Disable it first.")
        stores = self.beside(self.settings.with_all_enabled()).stores
        mine = [store for store in stores.values() if store.plugin == name]
        if not mine:
            raise CommandError(f"No installed plugin named {name} has a store.")
        for store in mine:
            try:
                with audit_of(self.settings, self.logger).around("purge", target=[store.name], **(origin or {})):
                    purge(store)
            except StoreError as error:
                raise CommandError(f"The store {store.name} was not dropped: {error}") from error
        return tuple(store.name for store in mine)

    def _take_up(
        self, key: str, value: object, accept: Collection[str], origin: Mapping[str, Any] | None
    ) -> ReloadReport:
        """Change a setting in the file and reload. Where that is refused, the file is as it was before."""
        edit = edit_setting(self.settings, self._models, key, value)
        report = self.reload(accept, origin=origin)
        if report.problems:
            edit.undo()
        return report

    @property
    def _models(self) -> Mapping[str, Any]:
        """The settings of the plugins that have some, by plugin."""
        return {} if self.generation is None else self.generation.models
