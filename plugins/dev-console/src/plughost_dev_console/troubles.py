"""Troubles: what a reload that was refused would have done to plugins that still serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plughost import HostView


def refused(host: HostView) -> dict[str, str]:
    """Return why the last reload was refused, by the plugins that serve on as they were before it."""
    report = host.last_reload
    if report is None or report.swapped:
        return {}
    active = {each.name for each in host.plugins if each.state == "active"}
    told = {label.partition(" ")[0]: why for label, why in (*report.failed, *report.blocked)}
    return {name: why for name, why in told.items() if name in active}
