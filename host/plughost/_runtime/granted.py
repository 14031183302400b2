"""What a host lets its trusted plugins do. What each member means stands in `plughost.HostControl`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plughost._api.errors import CommandError
from plughost._runtime.audit import audit_of
from plughost._runtime.state import HostState
from plughost._settings.editing import edit_disabled, edit_setting, preview_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from plughost._api.reload_report import ReloadReport
    from plughost._api.values import SettingChange
    from plughost._plugins.environment import Environment
    from plughost._runtime.generation import Generation
    from plughost._settings.sources import Settings
    from plughost.stores import OpenStore


class Granted(HostState):
    """A host, as far as trusted plugins control it."""

    _without: tuple[str, ...]

    @abstractmethod
    def environment(self) -> Environment:
        """Look at what is installed now."""

    @abstractmethod
    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Take up what changed."""

    @abstractmethod
    def look_at(self, settings: Settings) -> Generation:
        """Build what a host with other settings would serve, for looking at."""

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The open stores of all plugins, by name."""
        return {} if self.generation is None else self.generation.stores

    @property
    def logins(self) -> Mapping[str, Callable[[], str]]:
        """What issues a token for each demo account."""
        return {} if self.generation is None else self.generation.logins()

    def switch(self, name: str, *, enabled: bool, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Enable or disable a plugin in the settings file, and take that up.

        Raises:
            CommandError: It can't be switched. Nothing has changed.
        """
        installed = self.environment().plugins
        edit = edit_disabled(self.settings, name, enabled=enabled, installed=installed, without=self._without)
        accept = [] if enabled else [each.name for each in installed if name in each.requires]
        report = self.reload(accept, origin=origin)
        if report.problems:
            edit.undo()
        return report

    def preview_setting(self, key: str, value: object) -> SettingChange:
        """Return what `change_setting` would do to the settings file.

        Raises:
            CommandError: It can't be changed so.
        """
        return preview_setting(self.settings, self._models(), key, value)

    def change_setting(self, key: str, value: object, *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Change a setting in the settings file, and take that up.

        Raises:
            CommandError: It can't be changed so. Nothing has changed.
        """
        edit = edit_setting(self.settings, self._models(), key, value)
        report = self.reload(origin=origin)
        if report.problems:
            edit.undo()
        return report

    def purge(self, name: str, *, origin: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Drop all that a plugin keeps in its stores.

        Raises:
            CommandError: It serves, or has no store, or a store can't be dropped.
        """
        from plughost.stores import StoreError, purge  # noqa: PLC0415 - brings every store's code

        if name in {store.plugin for store in self.stores.values()}:
            raise CommandError(f"{name} serves its stores. Disable it first.")
        settings = replace(self.settings, host=self.settings.host.model_copy(update={"disabled": ()}))
        mine = [store for store in self.look_at(settings).stores.values() if store.plugin == name]
        if not mine:
            raise CommandError(f"No installed plugin named {name} has a store.")
        for store in mine:
            try:
                with audit_of(self.settings, self.logger).around("purge", target=[store.name], **(origin or {})):
                    purge(store)
            except StoreError as error:
                raise CommandError(f"The store {store.name} was not dropped: {error}") from error
        return tuple(store.name for store in mine)

    def _models(self) -> Mapping[str, Any]:
        """Return the settings of the plugins that have some, by plugin."""
        entries = () if self.generation is None else self.generation.registry.entries
        return {entry.name: entry.settings for entry in entries if entry.settings is not None}
