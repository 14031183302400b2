"""The checks that concern the host as a whole: its phase, its plugins, its certificate and its disk."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

from plughost import Check, Health
from plughost.certificates import CertificateError

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.view import HostView
    from plughost_health.settings import Settings


def own_checks(context: PluginContext[Settings]) -> list[Check]:
    """Return the checks that this plugin declares.

    Args:
        context: This plugin's context.
    """
    host, settings = context.host, context.settings
    certificate = partial(_certificate, host, settings.minimum_certificate_days)
    return [
        Check(name="process", check=_alive, kinds=frozenset({"live"})),
        Check(name="host", check=partial(_phase, host), kinds=frozenset({"ready", "started"})),
        Check(name="plugins", check=partial(_plugins, host), kinds=frozenset()),
        Check(name="disk", check=partial(_disk, host, int(settings.minimum_disk))),
        Check(name="certificate", check=certificate),
    ]


def _alive() -> Health:
    """Tell that the process answers, also while it stops: it needs no help to end."""
    return Health(up=True, data={"pid": os.getpid()})


def _phase(host: HostView) -> Health:
    """Tell whether the host takes requests: not while it starts, and not from the moment it is asked to stop."""
    return Health(up=host.phase == "serving", data={"phase": host.phase, "generation": host.generation})


def _plugins(host: HostView) -> Health:
    """Tell whether every plugin serves; one that does not is no reason to take the others out of service."""
    lost = {plugin.name: plugin.state for plugin in host.plugins if plugin.state in ("failed", "blocked")}
    return Health(up=not lost, data=lost)


def _disk(host: HostView, minimum: int) -> Health:
    folder = host.data_dir
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return Health(up=free >= minimum, data={"freeBytes": free, "minimumBytes": minimum})


def _certificate(host: HostView, minimum_days: int) -> Health:
    try:
        info = host.certificate()
    except CertificateError:
        return Health(up=False, data={"error": "the certificate can't be read any more"})
    if info is None:
        return Health(up=True, data={"https": "no listener"})
    data: dict[str, Any] = {"notAfter": info.not_after.isoformat(), "daysLeft": info.days_left}
    return Health(up=info.days_left >= minimum_days, data=data)
