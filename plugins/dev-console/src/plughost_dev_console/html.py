"""HTML: the console's templates, and errors as pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from plughost_dev_console.facts import duration, facts
from plughost_dev_console.guard import NO_SESSION, PREFIX

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

    from plughost import HostControl, HostView, PluginContext
    from plughost.http import Problem, Request
    from plughost_dev_console.gate import Gate
    from plughost_dev_console.jobs import Jobs

MEDIA_TYPE: Final = "text/html; charset=utf-8"
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


# Pages that reload when the host changes: they have no user input to lose.
_REDRAWN: Final = frozenset(
    {"overview", "plugins", "plugin", "routes", "stores", "hooks", "load", "health", "threads", "jobs"}
)


def make_environment() -> jinja2.Environment:
    """Return the templates' environment, with autoescape."""
    import jinja2  # noqa: PLC0415 - slow to import, needed only in development mode

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("plughost_dev_console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["prefix"] = PREFIX
    environment.filters["segment"] = partial(quote, safe="")
    environment.filters["marked"] = _marked
    environment.filters["duration"] = duration
    environment.filters["facts"] = facts
    environment.filters["ms"] = lambda seconds: f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
    environment.filters["count"] = lambda number, one: f"{number:,} {one if number == 1 else one + 's'}"
    return environment


@dataclass(frozen=True, slots=True)
class Pages:
    """Renders the console's pages."""

    context: PluginContext[Any]
    gate: Gate
    jobs: Jobs
    environment: jinja2.Environment = field(default_factory=make_environment)

    @property
    def host(self) -> HostView:
        """The host that the pages show."""
        return self.context.host

    @property
    def control(self) -> HostControl:
        """The control that the buttons use."""
        return self.context.control

    @property
    def own(self) -> str:
        """The console's own plugin."""
        return self.context.plugin

    def render(self, req: Request, template: str, title: str, **values: Any) -> str:
        """Return a page.

        Args:
            req: The request; it has a session.
            template: The template's name, without its ending.
            title: The page's title.
            **values: The template's values.
        """
        plugins = self.host.plugins
        return self.environment.get_template(f"{template}.html").render(
            title=title,
            redraw=template in _REDRAWN,
            here=req.path.rstrip("/"),
            navigation=NAVIGATION,
            elsewhere=self._elsewhere(req),
            pages=[(each, page) for each in plugins if each.state == "active" for page in each.declared.pages],
            host=self.host,
            version=metadata.version("plughost"),
            token=self.gate.token(req.context.session),
            trouble=sum(each.state in ("failed", "blocked") or bool(each.trouble) for each in plugins),
            **values,
        )

    def _elsewhere(self, req: Request) -> list[tuple[str, str]]:
        """Return links to the tools of other plugins, such as Swagger UI."""
        site = req.env["plughost.site"].name
        mounted = self.host.sites[site].groups if site in self.host.sites else ()
        prefixes = {group.prefix for _, group in mounted}
        known = (
            ("/q/swagger-ui", "Swagger UI"),
            ("/q/openapi?format=json", "OpenAPI"),
            ("/q/health", "Health probes"),
            ("/q/metrics", "Metrics"),
            ("/q/docs", "Documentation"),
        )
        return [(path, title) for path, title in known if path.partition("?")[0] in prefixes]


@dataclass(frozen=True, slots=True)
class HTMLErrors:
    """The `ErrorFormat` that renders errors as HTML pages."""

    environment: jinja2.Environment = field(default_factory=make_environment)
    media_type: str = MEDIA_TYPE
    validation_status: int = 400

    def render(self, problem: Problem) -> bytes:
        """Return the page."""
        template = self.environment.get_template("error.html")
        return template.render(problem=problem, closed=problem.title == NO_SESSION).encode("utf-8", "replace")


def inserted(html: str) -> Markup:
    """Mark a plugin's HTML as safe: the operator trusts the installed plugins' code."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2, see above

    return Markup(html)  # noqa: S704 - see above  # nosec B704


def _marked(text: str) -> Markup:
    """Return a text as HTML, with text between backticks as code."""
    from markupsafe import Markup  # noqa: PLC0415 - as above

    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if odd % 2 else part for odd, part in parts)
