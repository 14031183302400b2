"""What one site serves in a generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost._api.declarations import Middleware
    from plughost._api.host import SiteView
    from plughost._apps.application import App
    from plughost._apps.mounted import Mounted
    from plughost._apps.mounting import MountedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteApp:
    """What one site serves in a generation.

    Attributes:
        groups: The route groups mounted on it.
        middleware: The middleware around it, outermost first.
        app: Its Falcon app.
        prefixes: A route group's prefix to what stands for all below it.
        body_limit: Largest request body in bytes that any of its groups accepts.
        view: What plugins may see of it.
    """

    groups: tuple[MountedGroup, ...]
    middleware: tuple[Middleware, ...]
    app: App
    prefixes: Mapping[str, Mounted]
    body_limit: int
    view: SiteView
