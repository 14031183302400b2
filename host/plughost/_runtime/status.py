"""The state of a running host, as a value to show."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any

from plughost._api.errors import CertificateError
from plughost._tls.certificates import certificate_in_use, describe

if TYPE_CHECKING:
    from plughost._plugins.registry import Entry
    from plughost._runtime.state import HostState


def status_of(host: HostState) -> dict[str, Any]:
    """Return what a host is doing, in plain values."""
    now = datetime.now(UTC)
    return {
        "pid": os.getpid(),
        "version": metadata.version("plughost"),
        "phase": host.phase.value,
        "unready": host.unready,
        "dev": host.dev,
        "generation": host.number,
        "started_at": host.started_at.isoformat() if host.started_at is not None else None,
        "uptime_seconds": round((now - host.started_at).total_seconds(), 1) if host.started_at is not None else None,
        "in_flight": {name: site.in_flight for name, site in host.serving.sites.items()},
        "listeners": [asdict(replace(each, port=port)) for each, port in host.view.listeners.items()],
        "certificate": _certificate(host),
        "plugins": [_plugin(entry) for entry in sorted(host.entries, key=lambda each: each.name)],
        "last_reload": host.last_reload.as_plain() if host.last_reload is not None else None,
    }


def _certificate(host: HostState) -> dict[str, Any] | None:
    """Return what the HTTPS listeners show, and whether something else is on the disk by now."""
    if host.tls is None:
        return None
    info = describe(host.tls)
    try:
        found = describe(*certificate_in_use(host.settings))
        on_disk = "the same" if found.sha256 == info.sha256 else f"another one, until {found.not_after:%Y-%m-%d}"
    except CertificateError as error:
        on_disk = f"none that can be read: {error}"
    return {
        "names": list(info.names),
        "not_after": info.not_after.isoformat(),
        "days_left": info.days_left,
        "sha256": info.sha256,
        "file": str(info.path),
        "on_disk": on_disk,
    }


def _plugin(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "version": entry.installed.version,
        "state": entry.state.value,
        "reason": str(entry.failure) if entry.failure is not None else None,
        "trouble": [str(failure) for failure in entry.trouble],
        "prefixes": [group.prefix for group in entry.declared.groups],
    }
