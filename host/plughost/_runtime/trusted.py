"""What a trusted plugin may do to its host, such as the console: reload it, change its settings, purge data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plughost._api.errors import CommandError
from plughost._api.host import HostControl
from plughost._settings.editing import edit_setting, editing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from plughost._api.host import SettingChange
    from plughost._api.reload_report import ReloadReport
    from plughost._runtime.state import HostState
    from plughost._settings.sources import Settings
    from plughost.stores import OpenStore


class TrustedControl(HostControl):
    """The `HostControl` of a host."""

    def __init__(
        self, host: HostState, reload: Callable[..., ReloadReport], preview: Callable[[Settings], HostState]
    ) -> None:
        self._host, self._reload, self._preview = host, reload, preview

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        return self._host.stores

    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        return self._reload(accept, origin=origin)

    @property
    def logins(self) -> Mapping[str, Callable[[], str]]:
        return {name: issue for record in self._host.active for name, issue in record.context.logins.items()}

    def switch(self, name: str, *, enabled: bool, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        with editing(self._host.settings) as settings:
            host = settings.host
            installed = self._host.environment().plugins
            if name not in {each.name for each in installed}:
                raise CommandError(f"No plugin named {name} is installed.")
            if enabled and name in self._host.without:
                raise CommandError(f"{name} is skipped by --without; start the host without that.")
            if not enabled and name in host.required:
                raise CommandError(f"The setting required names {name}; remove it there first.")
            others = [each for each in host.disabled if each != name]
            accept = [] if enabled else [each.name for each in installed if name in each.requires]
            return self._change_and_reload("disabled", others if enabled else [*others, name], accept, origin)

    def preview_setting(self, key: str, value: object) -> SettingChange:
        return edit_setting(self._host.settings, self._host.generation.models, key, value).preview()

    def change_setting(self, key: str, value: object, *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        with editing(self._host.settings):
            return self._change_and_reload(key, value, (), origin)

    def purge(self, name: str, *, origin: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        from plughost.stores import StoreError, purge  # noqa: PLC0415 - brings every store's code

        if name in {store.plugin for store in self.stores.values()}:
            raise CommandError(f"{name} serves its stores. Disable it first.")
        stores = self._preview(self._host.settings.with_all_enabled()).stores
        own = [store for store in stores.values() if store.plugin == name]
        if not own:
            raise CommandError(f"No installed plugin named {name} has a store.")
        for store in own:
            try:
                with self._host.audit.recording("purge", target=[store.name], **(origin or {})):
                    purge(store)
            except StoreError as error:
                raise CommandError(f"The store {store.name} was not dropped: {error}") from error
        return tuple(store.name for store in own)

    def _change_and_reload(
        self, key: str, value: object, accept: Collection[str], origin: Mapping[str, Any] | None
    ) -> ReloadReport:
        """Change a setting in the file and reload. If that is refused, restore the file."""
        edit = edit_setting(self._host.settings, self._host.generation.models, key, value)
        edit.apply()
        report = self.reload(accept, origin=origin)
        if report.problems:
            edit.undo()
        return report
