"""Why the last reload was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plughost import HostView


def refusals(host: HostView) -> dict[str, str]:
    """Return the reasons by plugin why the last reload was refused, for the plugins that still serve."""
    report = host.last_reload
    if report is None or report.swapped:
        return {}
    active = {each.name for each in host.plugins if each.state == "active"}
    reasons = {label.partition(" ")[0]: why for label, why in (*report.failed, *report.blocked)}
    return {name: why for name, why in reasons.items() if name in active}
