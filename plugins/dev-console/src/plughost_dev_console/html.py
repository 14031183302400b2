"""HTML: the environment of the console's templates, and errors as pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from plughost_dev_console.facts import duration, facts, format_setting, is_secret, unit_of
from plughost_dev_console.guard import NO_SESSION, PREFIX

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

    from plughost.http import Problem

MEDIA_TYPE: Final = "text/html; charset=utf-8"


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
    environment.tests["secret"] = is_secret
    environment.filters |= {
        "segment": partial(quote, safe=""),
        "marked": _marked,
        "duration": duration,
        "facts": facts,
        "setting": format_setting,
        "unit": unit_of,
        "ms": lambda seconds: f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s",
        "count": lambda number, one: f"{number:,} {one if number == 1 else one + 's'}",
    }
    return environment


@dataclass(frozen=True, slots=True)
class HTMLErrors:
    """The `ErrorFormat` that renders errors as HTML pages."""

    environment: jinja2.Environment
    media_type: str = MEDIA_TYPE
    validation_status: int = 400

    def render(self, problem: Problem) -> bytes:
        """Return the page."""
        template = self.environment.get_template("error.html")
        return template.render(problem=problem, closed=problem.title == NO_SESSION).encode("utf-8", "replace")


def _marked(text: str) -> Markup:
    """Return a text as HTML, with text between backticks as code."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2, see above

    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if odd % 2 else part for odd, part in parts)
