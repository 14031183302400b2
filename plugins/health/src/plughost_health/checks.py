"""The checks of the host as a whole: its phase, plugins, certificate and disk."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from plughost import Check, Health

if TYPE_CHECKING:
    from plughost import HostView, PluginContext
    from plughost_health.settings import Settings


HOST: Final = "host"
"""The check that is down as soon as the host wants no more requests; its result is never cached."""


def own_checks(context: PluginContext[Settings]) -> list[Check]:
    """Return the checks that this plugin declares."""
    host, settings = context.host, context.settings
    return [
        Check(name="process", check=_alive, kinds=frozenset({"live"})),
        Check(name=HOST, check=partial(_ready, host), kinds=frozenset({"ready"})),
        Check(name="started", check=partial(_started, host), kinds=frozenset({"started"})),
        Check(name="plugins", check=partial(_plugins, host), kinds=frozenset()),
        Check(name="disk", check=partial(_disk, host, int(settings.minimum_disk))),
        Check(name="certificate", check=partial(_certificate, host, settings.minimum_certificate_days)),
    ]


def _alive() -> Health:
    """Report that the process responds. It does so while stopping, too, because it needs no restart."""
    return Health(up=True, data={"pid": os.getpid()})


def _ready(host: HostView) -> Health:
    """Report whether the host wants requests: it does from when it serves until it stops or is drained."""
    reason = host.unready
    data = {"phase": host.phase, "generation": host.generation}
    return Health(up=reason is None, data=data if reason is None else {**data, "reason": reason})


def _started(host: HostView) -> Health:
    return Health(up=host.phase != "starting", data={"phase": host.phase})


def _plugins(host: HostView) -> Health:
    """Report whether every plugin serves. It doesn't affect readiness, because the other plugins still serve."""
    not_serving = {plugin.name: plugin.state for plugin in host.plugins if plugin.state in ("failed", "blocked")}
    return Health(up=not not_serving, data=not_serving)


def _disk(host: HostView, minimum: int) -> Health:
    folder = host.data_dir
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return Health(up=free >= minimum, data={"freeBytes": free, "minimumBytes": minimum})


def _certificate(host: HostView, minimum_days: int) -> Health:
    """Report how long the certificate in use is valid; the file on disk may be another one."""
    info = host.certificate()
    if info is None:
        return Health(up=True, data={"https": "no listener"})
    data = {"notAfter": info.not_after.isoformat(), "daysLeft": info.days_left}
    return Health(up=info.days_left >= minimum_days, data=data)
