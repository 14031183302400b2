"""A plugin's context without a host that serves, for tests of a plugin's parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from plughost._api.context import PluginContext
from plughost._logging import silent_logger
from plughost._runtime.host import Host
from plughost._settings.models import HostSettings
from plughost._settings.sources import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost.stores import OpenStore

SettingsT = TypeVar("SettingsT")


def plugin_context(
    plugin: str,
    settings: SettingsT,
    data_dir: Path,
    *,
    dev: bool = True,
    stores: Mapping[str, OpenStore[Any]] | None = None,
) -> PluginContext[SettingsT]:
    """Return the context that a host would give a plugin.

    Args:
        plugin: The plugin's name.
        settings: Its settings.
        data_dir: The host's data folder.
        dev: Whether the host runs with `--dev`.
        stores: The open stores that the plugin may use.
    """
    host_settings = Settings(file=None, base=data_dir, host=HostSettings(data_dir=data_dir), tables={}, environment={})
    return PluginContext(
        plugin=plugin,
        settings=settings,
        dev=dev,
        logger=structlog.get_logger(),
        data_root=data_dir,
        services=Host(host_settings, dev=dev, logger=silent_logger()).view,
        stores=stores or {},
    )
