"""A certificate that was replaced on the disk, taken up by a reload."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from plughost._api.errors import CertificateError
from plughost._servers import ListenError
from plughost._tls.certificates import describe, prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost._api.reload_report import ReloadReport
    from plughost._runtime.assembly import SiteApp
    from plughost._runtime.sites import Serving
    from plughost._settings.sources import Settings


def take_up_certificate(
    report: ReloadReport, serving: Serving, site_apps: Mapping[str, SiteApp], settings: Settings, *, dev: bool
) -> ReloadReport:
    """Show the certificate that is on the disk now, whatever became of the plugins, and report it.

    One that can't be shown is refused, and the old one goes on.
    """
    if not serving.shown:
        return report
    try:
        fresh = prepare(settings, dev=dev)
        if all(each.chain == fresh.chain for each in serving.shown.values()):
            return report
        serving.renew(fresh, site_apps, settings.host.grace_time)
    except (CertificateError, ListenError) as error:
        return replace(report, certificate_refused=str(error))
    info = describe(fresh)
    until = f"{info.not_after:%Y-%m-%d %H:%M} UTC"
    return replace(report, certificate=f"{', '.join(info.names) or info.subject}, until {until}")
