"""A plugin-based service host: what plugin authors import."""

from __future__ import annotations

import os

# On import, pydantic looks for its own plugins, and ends the process if any distribution's entry_points.txt can't be
# read. To use pydantic's plugins, set the variable to an empty string.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from plughost._api.bounded import TookTooLong, bounded
from plughost._api.context import PluginContext
from plughost._api.declarations import (
    Check,
    Health,
    Middleware,
    Observer,
    Operation,
    Page,
    Parameter,
    Principal,
    Response,
    Route,
    RouteGroup,
    Store,
)
from plughost._api.errors import CertificateError, CommandError, NotRunning, PluginError
from plughost._api.events import Event, Events, RequestKind, RequestRecord, Timings
from plughost._api.hookspecs import hookimpl
from plughost._api.host import (
    CertificateInfo,
    HostControl,
    HostView,
    Listener,
    Load,
    PluginView,
    SettingChange,
    SiteView,
    Value,
)
from plughost._api.jobs import Job, JobRun, JobView
from plughost._api.metrics import Counter, Gauge, Histogram, Metrics, MetricView
from plughost._api.reload_report import ReloadReport
from plughost._files import locked_folder, tighten, write_private
from plughost._waiting import about_to_wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plughost._plugins.distributions import InstalledDistribution
    from plughost._plugins.environment import Environment, InstalledPlugin

__all__ = [
    "CertificateError",
    "CertificateInfo",
    "Check",
    "CommandError",
    "Counter",
    "Environment",
    "Event",
    "Events",
    "Gauge",
    "Health",
    "Histogram",
    "HostControl",
    "HostView",
    "InstalledDistribution",
    "InstalledPlugin",
    "Job",
    "JobRun",
    "JobView",
    "Listener",
    "Load",
    "MetricView",
    "Metrics",
    "Middleware",
    "NotRunning",
    "Observer",
    "Operation",
    "Page",
    "Parameter",
    "PluginContext",
    "PluginError",
    "PluginView",
    "Principal",
    "ReloadReport",
    "RequestKind",
    "RequestRecord",
    "Response",
    "Route",
    "RouteGroup",
    "SettingChange",
    "SiteView",
    "Store",
    "Timings",
    "TookTooLong",
    "Value",
    "about_to_wait",
    "bounded",
    "hookimpl",
    "locked_folder",
    "tighten",
    "write_private",
]


def __getattr__(name: str) -> Any:
    """Import what most plugins don't need, and is slow to import, on first use."""
    if name in {"Environment", "InstalledDistribution", "InstalledPlugin"}:
        from plughost._plugins import environment  # noqa: PLC0415 - see above

        return getattr(environment, name)
    raise AttributeError(name)
