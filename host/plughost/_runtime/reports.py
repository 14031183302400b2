"""Reports for operators: the status of a host, and the result of a reload."""

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

    from plughost._plugins.registry import PluginRecord
    from plughost._runtime.generation import Generation
    from plughost._runtime.state import HostState


def status_of(host: HostState) -> dict[str, Any]:
    started_at = host.started_at
    uptime = (datetime.now(UTC) - started_at).total_seconds() if started_at is not None else None
    return {
        "pid": os.getpid(),
        "version": metadata.version("plughost"),
        "phase": host.phase.value,
        "unready": host.unready,
        "dev": host.dev,
        "generation": host.generation.number,
        "started_at": started_at and started_at.isoformat(),
        "uptime_seconds": uptime and round(uptime, 1),
        "in_flight": host.view.in_flight,
        "listeners": [asdict(replace(each, port=port)) for each, port in host.view.listeners.items()],
        "certificate": _certificate_status(host),
        "plugins": [
            {
                "name": each.name,
                "version": each.version,
                "state": each.state,
                "reason": each.reason,
                "trouble": each.trouble,
                "prefixes": [*each.declared.prefixes()],
            }
            for each in sorted(host.view.plugins, key=lambda each: each.name)
        ],
        "last_reload": host.last_reload and host.last_reload.as_plain(),
    }


def report_swapped(
    running: Generation,
    following: Generation,
    started: float,
    *,
    cut_off: Iterable[str],
    restart_needed: Iterable[str],
) -> ReloadReport:
    """Return the report of a reload that swapped in a generation."""
    after, active, leaving = following.registry, following.registry.active(), running.registry.active()
    active_before = {record.name for record in leaving}
    return ReloadReport(
        swapped=True,
        generation=following.number,
        added=tuple(record.name for record in active if record.name not in active_before),
        changed=tuple(record.name for record in active if record.name in active_before and not record.reused),
        disabled=tuple(
            record.name for record in after if record.name in active_before and record.state is State.DISABLED
        ),
        removed=tuple(sorted(active_before - {record.name for record in after})),
        reused=tuple(record.name for record in active if record.reused),
        failed=_failure_reasons(after, State.FAILED),
        blocked=_failure_reasons(after, State.BLOCKED),
        cut_off=tuple(cut_off),
        restart_needed=tuple(restart_needed),
        trouble=(*trouble_of(active), *trouble_of(leaving, "stopping")),
        seconds=_seconds(after, started),
    )


def report_unchanged(
    running: Generation,
    problems: Iterable[str],
    started: float,
    *,
    refused: Iterable[PluginRecord] = (),
    restart_needed: Iterable[str] = (),
) -> ReloadReport:
    """Return the report of a reload that left the running generation unchanged."""
    return ReloadReport(
        swapped=False,
        generation=running.number,
        problems=tuple(problems),
        failed=_failure_reasons(refused, State.FAILED),
        blocked=_failure_reasons(refused, State.BLOCKED),
        restart_needed=tuple(restart_needed),
        seconds=_seconds(refused, started),
    )


def trouble_of(records: Iterable[PluginRecord], stage: str = "") -> tuple[tuple[str, str], ...]:
    """Return the troubles of plugins that serve; only those of `stage`, if given."""
    return tuple(
        (record.installed.label, str(failure))
        for record in records
        for failure in record.trouble
        if stage in {"", failure.stage}
    )


def _failure_reasons(records: Iterable[PluginRecord], state: State) -> tuple[tuple[str, str], ...]:
    return tuple((record.installed.label, str(record.failure)) for record in records if record.state is state)


def _seconds(records: Iterable[PluginRecord], started: float) -> dict[str, float]:
    by_plugin = {
        record.name: round(sum(record.seconds.values()), 4)
        for record in records
        if record.state is State.ACTIVE and not record.reused
    }
    return {**by_plugin, "total": round(monotonic() - started, 4)}


def _certificate_status(host: HostState) -> dict[str, Any] | None:
    """Return the certificate of the HTTPS listeners, and whether the one on disk differs."""
    if host.tls is None:
        return None
    from plughost._tls.certificates import certificate_in_use, describe  # noqa: PLC0415 - brings cryptography

    info = describe(host.tls)
    try:
        current = describe(*certificate_in_use(host.settings))
        on_disk = "the same" if current.sha256 == info.sha256 else f"another one, until {current.not_after:%Y-%m-%d}"
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
