"""What a host tells the person who asks: what it is doing, and what came of a reload."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import metadata
from time import monotonic
from typing import TYPE_CHECKING, Any

from plughost._api.errors import CertificateError
from plughost._api.reload_report import ReloadReport
from plughost._plugins.registry import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plughost._plugins.registry import PluginRecord, Registry
    from plughost._runtime.state import HostState


def status_of(host: HostState) -> dict[str, Any]:
    """Return what a host is doing, in plain values."""
    since = host.started_at
    return {
        "pid": os.getpid(),
        "version": metadata.version("plughost"),
        "phase": host.phase.value,
        "unready": host.unready,
        "dev": host.dev,
        "generation": host.number,
        "started_at": since.isoformat() if since is not None else None,
        "uptime_seconds": round((datetime.now(UTC) - since).total_seconds(), 1) if since is not None else None,
        "in_flight": {name: site.in_flight for name, site in host.serving.sites.items()},
        "listeners": [asdict(replace(each, port=port)) for each, port in host.view.listeners.items()],
        "certificate": _certificate(host),
        "plugins": [_plugin(record) for record in sorted(host.records, key=lambda each: each.name)],
        "last_reload": host.last_reload.as_plain() if host.last_reload is not None else None,
    }


def report_of(
    generation: int,
    before: Registry,
    after: Registry,
    begun: float,
    *,
    cut_off: Iterable[str],
    restart_needed: Iterable[str],
) -> ReloadReport:
    """Return the report of a reload that swapped."""
    active = after.active()
    served = {record.name for record in before.active()}
    known = {record.name for record in after}
    return ReloadReport(
        swapped=True,
        generation=generation,
        added=tuple(record.name for record in active if record.name not in served),
        changed=tuple(record.name for record in active if record.name in served and not record.reused),
        disabled=tuple(record.name for record in after if record.name in served and record.state is State.DISABLED),
        removed=tuple(sorted(served - known)),
        reused=tuple(record.name for record in active if record.reused),
        failed=_reasons(after, State.FAILED),
        blocked=_reasons(after, State.BLOCKED),
        cut_off=tuple(cut_off),
        restart_needed=tuple(restart_needed),
        trouble=(*trouble_of(active), *trouble_of(before.active(), "stopping")),
        seconds=_seconds(after, begun),
    )


def report_of_nothing(
    generation: int,
    problems: Iterable[str],
    begun: float,
    *,
    refused: Iterable[PluginRecord] = (),
    restart_needed: Iterable[str] = (),
) -> ReloadReport:
    """Return the report of a reload that left the running generation as it was."""
    return ReloadReport(
        swapped=False,
        generation=generation,
        problems=tuple(problems),
        failed=_reasons(refused, State.FAILED),
        blocked=_reasons(refused, State.BLOCKED),
        restart_needed=tuple(restart_needed),
        seconds=_seconds(refused, begun),
    )


def trouble_of(records: Iterable[PluginRecord], stage: str = "") -> tuple[tuple[str, str], ...]:
    """Return what went wrong with some plugins since they serve. Of one stage, where one is named."""
    return tuple(
        (record.installed.label, str(failure))
        for record in records
        for failure in record.trouble
        if stage in {"", failure.stage}
    )


def _reasons(records: Iterable[PluginRecord], state: State) -> tuple[tuple[str, str], ...]:
    return tuple((record.installed.label, str(record.failure)) for record in records if record.state is state)


def _seconds(records: Iterable[PluginRecord], begun: float) -> dict[str, float]:
    spent = {
        record.name: round(sum(record.seconds.values()), 4)
        for record in records
        if record.state is State.ACTIVE and not record.reused
    }
    return {**spent, "total": round(monotonic() - begun, 4)}


def _certificate(host: HostState) -> dict[str, Any] | None:
    """Return what the HTTPS listeners show, and whether something else is on the disk by now."""
    if host.tls is None:
        return None
    from plughost._tls.certificates import certificate_in_use, describe  # noqa: PLC0415 - brings cryptography

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


def _plugin(record: PluginRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "version": record.installed.version,
        "state": record.state.value,
        "reason": str(record.failure) if record.failure is not None else None,
        "trouble": [str(failure) for failure in record.trouble],
        "prefixes": [group.prefix for group in record.declared.groups],
    }
