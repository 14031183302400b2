"""The development console at `/q/dev`, and `/`, which leads there (CONTRACT 8)."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from plughost import Middleware, Observer, Operation, Parameter, Response, Route, RouteGroup, hookimpl
from plughost_dev_console.commands import console_command
from plughost_dev_console.gate import Gate
from plughost_dev_console.guard import PREFIX, Guard
from plughost_dev_console.html import HTMLErrors, Pages
from plughost_dev_console.jobs import Jobs
from plughost_dev_console.recording import MOST_A_SECOND, Lines, Requests
from plughost_dev_console.resources import (
    Assets,
    Enter,
    Feed,
    JobState,
    Leave,
    PluginPage,
    Reload,
    Switch,
    ToConsole,
    View,
)
from plughost_dev_console.settings import Settings
from plughost_dev_console.showing import Showing
from plughost_dev_console.trying import address

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from plughost import PluginContext

_BODY_LIMIT: Final = 16 * 1024


def _text(name: str, description: str) -> Parameter:
    schema = {"type": "string", "default": ""}
    return Parameter(name=name, place="query", description=description, schema=schema, allow_empty=True)


def _number(name: str, description: str, default: int) -> Parameter:
    schema = {"type": "integer", "default": default}
    return Parameter(name=name, place="query", description=description, schema=schema, allow_empty=True)


_AFTER: Final = _number("after", "The newest that is known.", 0)
# Of the views, by template.
_PARAMETERS: Final = {
    "plugins": (_text("job", "A job whose result is shown."),),
    "table": (_text("q", "What rows are to contain."), _number("page", "The page, from 1.", 1)),
}


class ConsolePlugin:
    """The plugin; one for each host. What must outlive it is kept by the host, in plain values."""

    def __init__(self) -> None:
        """Begin without a host."""
        self._unsubscribe: Callable[[], None] | None = None

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model of `[plugins.dev-console]`."""
        return Settings

    @hookimpl
    def register_middleware(self, context: PluginContext[Settings]) -> list[Middleware]:
        """Guard the console's own requests."""
        if not context.dev:
            return []
        if self._unsubscribe is None:  # from here on, to have what is logged of plugins that fail
            self._unsubscribe = context.host.lines.subscribe(_lines(context))
        return [Middleware(name="console-guard", component=Guard(_gate(context), context.host))]

    @hookimpl
    def register_observers(self, context: PluginContext[Settings]) -> list[Observer]:
        """Record the requests of the host; of very many, as under load, the first of each second."""
        if not context.dev:
            return []
        return [Observer(name="requests", observe=_requests(context).observe, at_most=MOST_A_SECOND)]

    @hookimpl
    def register_routes(self, context: PluginContext[Settings]) -> list[RouteGroup]:
        """Mount the console, with `--dev` only."""
        if not context.dev:
            return []
        pages = Pages(context, _gate(context), Jobs(context.keep("jobs", dict)))
        group = RouteGroup(
            prefix=PREFIX,
            routes=(*_views(context, pages), *_actions(context, pages)),
            errors=HTMLErrors(pages.environment),
            body_limit=_BODY_LIMIT,
            title="Development console",
            described=False,
        )
        if not context.settings.root:
            return [group]
        to_console = Route("", ToConsole(), {"GET": _operation("Go to the console")})
        root = RouteGroup(prefix="/", routes=(to_console,), errors=group.errors, described=False)
        return [root, group]

    @hookimpl
    def register_commands(self) -> list[click.Command]:
        """Return the command `plughost dev-console`."""
        return [console_command]

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Show a link to whoever starts the host."""
        if not context.dev:
            return
        context.add_query("link", lambda: {"link": _link(context)})
        minutes = context.settings.link_lifetime / 60
        context.announce(f"Console: {_link(context)}")
        context.announce(f"  opens once, within {minutes:g} minutes; plughost dev-console makes another link")

    @hookimpl
    def stopping(self, context: PluginContext[Settings]) -> None:
        """Watch no more."""
        if self._unsubscribe is not None:
            self._unsubscribe()


def _views(context: PluginContext[Settings], pages: Pages) -> list[Route]:
    show = Showing(
        context.host,
        context.control,
        context.plugin,
        jobs=pages.jobs,
        requests=_requests(context),
        lines=_lines(context),
    )
    views = (
        ("", "overview", "Overview", show.overview),
        ("/plugins", "plugins", "Plugins", show.plugins),
        ("/plugins/{name}", "plugin", "Plugin", show.plugin),
        ("/routes", "routes", "Routes", show.routes),
        ("/requests", "requests", "Requests", show.requests),
        ("/log", "log", "Log", show.log),
        ("/stores", "stores", "Stores", show.stores),
        ("/stores/{store}/{table}", "table", "Table", show.table),
        ("/settings", "settings", "Settings", show.settings),
        ("/health", "health", "Health", show.health),
        ("/hooks", "hooks", "Hooks", show.hooks),
        ("/load", "load", "Load report", show.load),
    )
    return [
        Route(
            path,
            View(pages, template, title, shown),
            {"GET": _operation(f"Show: {title}", *_PARAMETERS.get(template, ()))},
        )
        for path, template, title, shown in views
    ]


def _actions(context: PluginContext[Settings], pages: Pages) -> list[Route]:
    json = "application/json"
    gets: list[tuple[str, object, str, tuple[str, ...], tuple[Parameter, ...]]] = [
        ("/open", Enter(pages), "Open the console by a link", (), (_text("link", "The link."),)),
        ("/assets/{name}", Assets(), "Get a file of the console", (), ()),
        ("/pages/{plugin}/{page}", PluginPage(pages), "Show a page of a plugin", ("text/html",), ()),
        ("/requests/new", Feed(_requests(context)), "Tell of new requests", (json,), (_AFTER,)),
        ("/log/new", Feed(_lines(context)), "Tell of new lines", (json,), (_AFTER,)),
        ("/jobs/{job}", JobState(pages), "Tell how far a job is", (json,), ()),
    ]
    posts: list[tuple[str, object, str]] = [
        ("/leave", Leave(pages), "Close the console"),
        ("/reload", Reload(pages), "Reload"),
        ("/plugins/{name}/state", Switch(pages), "Enable or disable a plugin"),
    ]
    return [
        *(
            Route(path, each, {"GET": Operation(summary=about, produces=kinds, parameters=parameters)})
            for path, each, about, kinds, parameters in gets
        ),
        *(Route(path, each, {"POST": Operation(summary=about, produces=())}) for path, each, about in posts),
    ]


def _operation(summary: str, *parameters: Parameter) -> Operation:
    answer = Response(description="The page.", model=str, media_types=("text/html",))
    return Operation(summary=summary, responses={200: answer}, produces=("text/html",), parameters=parameters)


def _gate(context: PluginContext[Settings]) -> Gate:
    key = context.keep("key", lambda: secrets.token_bytes(32))
    return Gate(key, context.keep("links", dict), context.keep("sessions", dict), context.settings)


def _requests(context: PluginContext[Settings]) -> Requests:
    size = context.settings.requests
    return Requests(
        context.keep(f"requests {size}", lambda: deque(maxlen=size)),
        context.keep("last request", lambda: [0]),
        context.keep("lock of requests", threading.Lock),
        context.plugin,
        context.host,
    )


def _lines(context: PluginContext[Settings]) -> Lines:
    size = context.settings.lines
    ring: deque[Any] = context.keep(f"lines {size}", lambda: deque(maxlen=size))
    return Lines(ring, context.keep("numbers", lambda: count(1)), context.plugin)


def _link(context: PluginContext[Settings]) -> str:
    own = next((each.sites for each in context.host.plugins if each.name == context.plugin), ())
    on_ipv6 = any(each.site in own and ":" in each.address for each in context.host.listeners)
    base = address(context.host, own[0], "[::1]" if on_ipv6 else "127.0.0.1") if own else ""
    return f"{base}{PREFIX}/open?link={_gate(context).new_link()}"
