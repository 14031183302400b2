"""The console of a host: what it has recorded, and the frame of its pages."""

from __future__ import annotations

import secrets
from collections import deque
from functools import cached_property
from importlib import metadata
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from plughost_dev_console.exchanges import Exchanges
from plughost_dev_console.gate import Gate
from plughost_dev_console.html import MEDIA_TYPE, make_environment
from plughost_dev_console.jobs import Jobs
from plughost_dev_console.lines import Lines
from plughost_dev_console.recording import Requests
from plughost_dev_console.vitals import Vitals

if TYPE_CHECKING:
    import falcon
    import jinja2

    from plughost import HostControl, PluginContext
    from plughost.http import Request
    from plughost_dev_console.settings import Settings

NAVIGATION: Final = (
    ("", "Overview"),
    ("/plugins", "Plugins"),
    ("/routes", "Routes"),
    ("/requests", "Requests"),
    ("/log", "Log"),
    ("/stores", "Stores"),
    ("/settings", "Settings"),
    ("/jobs", "Jobs"),
    ("/threads", "Threads"),
    ("/health", "Health"),
    ("/hooks", "Hooks"),
    ("/load", "Load report"),
)
_TOOLS: Final = (
    ("/q/swagger-ui", "Swagger UI"),
    ("/q/openapi?format=json", "OpenAPI"),
    ("/q/health", "Health probes"),
    ("/q/metrics", "Metrics"),
    ("/q/docs", "Documentation"),
)
# Pages that reload when the host changes: they have no user input to lose.
_REDRAWN: Final = frozenset(
    {"overview", "plugins", "plugin", "routes", "stores", "hooks", "load", "health", "threads", "jobs"}
)


class Console:
    """The console.

    Each generation makes its own ones. The host keeps the records, in plain values, because they outlive these classes.
    """

    def __init__(self, context: PluginContext[Settings]) -> None:
        self.context = context
        self.host = context.host
        self.own = context.plugin
        keep, settings = context.keep, context.settings

        def ring(name: str, size: int) -> deque[Any]:
            return keep(f"{name} {size}", lambda: deque(maxlen=size))

        key = keep("key", lambda: secrets.token_bytes(32))
        self.gate = Gate(key, keep("links", dict), keep("sessions", dict), settings)
        self.jobs = Jobs(keep("jobs", dict))
        numbers = keep("numbers", lambda: count(1))
        self.lines = Lines(ring("lines", settings.lines), ring("wrong lines", settings.lines), numbers, self.own)
        numbers = keep("numbers of requests", lambda: count(1))
        self.requests = Requests(ring("requests and clocks", settings.requests), numbers, self.own, self.host)
        self.exchanges = Exchanges(ring("exchanges", settings.requests), self.own)
        self.vitals = Vitals(keep("vitals", dict), keep("lock", Lock), keep("seen", dict), self.own, self.host)
        self.last_news: dict[str, str] = keep("last news", dict)

    @property
    def control(self) -> HostControl:
        """What the buttons use. It raises if the settings don't trust the plugin."""
        return self.context.control

    @cached_property
    def environment(self) -> jinja2.Environment:
        """The templates."""
        return make_environment()

    def send(self, req: Request, resp: falcon.Response, template: str, title: str, **values: Any) -> None:
        """Respond to a request with a session by a page. The template's name has no ending."""
        plugins = self.host.plugins
        site = self.host.sites.get(req.site)
        prefixes = {group.prefix for _, group in site.groups} if site is not None else set()
        resp.content_type = MEDIA_TYPE
        resp.text = self.environment.get_template(f"{template}.html").render(
            title=title,
            redraw=template in _REDRAWN,
            here=req.path.rstrip("/"),
            navigation=NAVIGATION,
            elsewhere=[(path, name) for path, name in _TOOLS if path.partition("?")[0] in prefixes],
            pages=[(each, page) for each in plugins if each.state == "active" for page in each.declared.pages],
            host=self.host,
            version=metadata.version("plughost"),
            token=self.gate.token(req.context.session),
            trouble=sum(each.state in ("failed", "blocked") or bool(each.trouble) for each in plugins),
            own=self.own,
            **values,
        )
