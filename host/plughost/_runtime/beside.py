"""Beside the host that runs: what a command does to it, from another process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plughost._logging import silent_logger
from plughost._runtime.control import reload_running
from plughost._runtime.host import Host

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from plughost._api.reload_report import ReloadReport
    from plughost.stores import OpenStore


class CommandHost(Host):
    """The host of a plugin's command. It never serves, and passes commands on to the running host."""

    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Let the host that runs reload. See `plughost.HostControl`."""
        return reload_running(self.settings.data_dir, accept)

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The stores of every installed plugin, disabled ones too, prepared and not open."""
        if self.generation is None:
            enabled = replace(self.settings, host=self.settings.host.model_copy(update={"disabled": ()}))
            self.generation = Host(enabled, logger=silent_logger()).look()
        return self.generation.stores
