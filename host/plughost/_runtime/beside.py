"""Beside the host that runs: what a command does to it, from another process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plughost._api.errors import OperationError
from plughost._api.reload_report import ReloadReport
from plughost._logging import silent_logger
from plughost._runtime.control import ask
from plughost._runtime.host import Host

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from plughost.stores import OpenStore


def reload_running(data_dir: Path, accept: Collection[str] = ()) -> ReloadReport:
    """Let the host that runs on a data folder take up what has changed.

    Args:
        data_dir: The data folder.
        accept: Plugins that serve now and may be failed or blocked afterwards.

    Raises:
        NotRunning: No host runs there.
        OperationError: It can't; the message says why.
    """
    told = ask(data_dir, "reload", accept=sorted(accept))
    if "error" in told:  # from a host of another version, or one in trouble
        raise OperationError(f"The running host did not reload: {told['error']}.")
    return ReloadReport.from_plain(told)


class CommandHost(Host):
    """The host of a plugin's command. It never serves: what it is told to do, the host that runs does."""

    def reload(self, accept: Collection[str] = ()) -> ReloadReport:
        """Let the host that runs reload; see `plughost.HostControl`."""
        return reload_running(self.settings.data_dir, accept)

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The stores of every installed plugin, disabled ones too, prepared and not open."""
        if self.generation is None:
            enabled = replace(self.settings, host=self.settings.host.model_copy(update={"disabled": ()}))
            self.generation = Host(enabled, logger=silent_logger()).look()
        return self.generation.stores
