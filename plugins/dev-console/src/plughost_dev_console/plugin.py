"""The development console at `/q/dev`, and the redirect from `/` (CONTRACT 8)."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from plughost import Middleware, Observer, Operation, Parameter, Response, Route, RouteGroup, hookimpl
from plughost.http import EventChannel, ServerSentEvent
from plughost_dev_console.browsing import Browsing
from plughost_dev_console.exchanges import Exchanges
from plughost_dev_console.gate import Gate
from plughost_dev_console.guard import PREFIX, Guard
from plughost_dev_console.html import HTMLErrors, Pages
from plughost_dev_console.jobs import Jobs
from plughost_dev_console.lines import Lines
from plughost_dev_console.offers import address
from plughost_dev_console.recording import MAX_PER_SECOND, Requests
from plughost_dev_console.resources import (
    Assets,
    ConsoleRedirect,
    Enter,
    Feed,
    JobState,
    Leave,
    News,
    Palette,
    PluginPage,
    Purge,
    Reload,
    Switch,
    View,
    Vital,
)
from plughost_dev_console.setting_change import Change
from plughost_dev_console.settings import Settings
from plughost_dev_console.try_page import Replay, Try
from plughost_dev_console.view_data import ViewData
from plughost_dev_console.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from plughost import Event, PluginContext

_BODY_LIMIT: Final = 256 * 1024  # a form can contain the body of another request


def _text(name: str, description: str) -> Parameter:
    schema = {"type": "string", "default": ""}
    return Parameter(name=name, place="query", description=description, schema=schema, allow_empty=True)


def _number(name: str, description: str, default: int) -> Parameter:
    schema = {"type": "integer", "default": default}
    return Parameter(name=name, place="query", description=description, schema=schema, allow_empty=True)


_AFTER: Final = _number("after", "The number of the newest known item.", 0)
_OF_LINES: Final = (_text("level", "The lowest level."), _text("q", "Words that a line contains."))
_OF_REQUESTS: Final = (
    _text("plugin", "The plugin; `none` for no plugin."),
    _text("status", "The status's first digit, or `bad`."),
    _number("minutes", "The maximum age; 0 for any.", 0),
    _text("q", "Words that path, method or id contain."),
    _text("order", "`slowest`, or by time."),
)
# Parameters of the views, by template.
_PARAMETERS: Final = {
    "log": _OF_LINES,
    "requests": _OF_REQUESTS,
    "plugins": (_text("job", "The job whose result is shown."),),
    "table": (
        _text("q", "Text that rows contain."),
        _number("page", "The page, from 1.", 1),
        _text("order", "The column to sort by."),
        _text("way", "`down` for the largest first."),
        _text("column", "The column to filter by."),
        _text("value", "The value in that column."),
    ),
}


class ConsolePlugin:
    """The plugin, with one instance for each host. The host keeps what must outlive it, in plain values."""

    def __init__(self) -> None:
        """Subscribe to nothing yet."""
        self._unsubscribe: Callable[[], None] | None = None
        self._unsubscribe_events: Callable[[], None] | None = None
        self._news = EventChannel()

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model that validates `[plugins.dev-console]`."""
        return Settings

    @hookimpl
    def register_middleware(self, context: PluginContext[Settings]) -> list[Middleware]:
        """Guard the console's own requests."""
        if not context.dev:
            return []
        if self._unsubscribe is None:  # early, to record the log lines of failing plugins
            self._unsubscribe = context.host.lines.subscribe(_lines(context))
        return [
            Middleware(name="console-guard", component=Guard(_gate(context), context.host)),
            Middleware(name="console-headers", component=_exchanges(context), scope="host"),
        ]

    @hookimpl
    def register_observers(self, context: PluginContext[Settings]) -> list[Observer]:
        """Record the host's requests; under load, only the first ones of each second."""
        if not context.dev:
            return []
        return [
            Observer(name="requests", observe=_requests(context).observe, at_most=MAX_PER_SECOND, timings=True),
            Observer(name="vitals", observe_times=_vitals(context).observe),
        ]

    @hookimpl
    def register_routes(self, context: PluginContext[Settings]) -> list[RouteGroup]:
        """Mount the console, with `--dev` only."""
        if not context.dev:
            return []
        pages = Pages(context, _gate(context), Jobs(context.keep("jobs", dict)))
        if self._unsubscribe_events is None:
            self._unsubscribe_events = context.host.events.subscribe(partial(_publish_reload, context, self._news))
        group = RouteGroup(
            prefix=PREFIX,
            routes=(*_views(context, pages), *_actions(context, pages, self._news)),
            errors=HTMLErrors(pages.environment),
            body_limit=_BODY_LIMIT,
            title="Development console",
            described=False,
        )
        if not context.settings.root:
            return [group]
        to_console = Route("", ConsoleRedirect(), {"GET": _operation("Go to the console")})
        root = RouteGroup(prefix="/", routes=(to_console,), errors=group.errors, described=False)
        return [root, group]

    @hookimpl
    def register_commands(self) -> list[click.Command]:
        """Add the command `plughost dev-console`."""
        from plughost_dev_console.commands import console_command  # noqa: PLC0415 - a host that serves runs no commands

        return [console_command]

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Print a link when the host starts."""
        if not context.dev:
            return
        context.add_query("link", lambda: {"link": _link(context)})
        minutes = context.settings.link_lifetime / 60
        within = "1 minute" if minutes == 1 else f"{minutes:g} minutes"
        context.announce(f"Console: {_link(context)}")
        context.announce(f"  opens once, within {within}; plughost dev-console makes another link")

    @hookimpl
    def stopping(self, context: PluginContext[Settings]) -> None:
        """End the subscriptions."""
        for unsubscribe in (self._unsubscribe, self._unsubscribe_events):
            if unsubscribe is not None:
                unsubscribe()


def _publish_reload(context: PluginContext[Settings], news: EventChannel, event: Event) -> None:
    """Record a reload, and publish it to all open tabs."""
    if event.name != "reload":
        return
    report = event.fields
    _vitals(context).record_reload(report)
    named = [
        (word, report.get(word) or ()) for word in ("added", "changed", "disabled", "removed", "failed", "blocked")
    ]
    parts = [
        f"{word}: {', '.join(each if isinstance(each, str) else each[0] for each in names)}"
        for word, names in named
        if names
    ]
    begun = f"Generation {report['generation']} serves." if report["swapped"] else "The reload was refused."
    text = " ".join((begun, "; ".join(parts)))
    context.keep("last news", dict[str, str])["text"] = text
    news.publish(ServerSentEvent(name="state", data={"generation": report["generation"], "text": text, "old": False}))


def _view_data(context: PluginContext[Settings], pages: Pages) -> ViewData:
    return ViewData(
        context.host,
        context.control,
        context.plugin,
        jobs=pages.jobs,
        requests=_requests(context),
        exchanges=_exchanges(context),
        lines=_lines(context),
        vitals=_vitals(context),
    )


def _views(context: PluginContext[Settings], pages: Pages) -> list[Route]:
    show, browsing = _view_data(context, pages), Browsing(context.control)
    views = (
        ("", "overview", "Overview", show.overview),
        ("/plugins", "plugins", "Plugins", show.plugins),
        ("/plugins/{name}", "plugin", "Plugin", show.plugin),
        ("/routes", "routes", "Routes", show.routes),
        ("/requests", "requests", "Requests", show.requests),
        ("/requests/{number}", "request", "Request", show.request),
        ("/log", "log", "Log", show.log),
        ("/threads", "threads", "Threads", show.threads),
        ("/stores", "stores", "Stores", browsing.stores),
        ("/stores/{store}/{table}", "table", "Table", browsing.table),
        ("/settings", "settings", "Settings", show.settings),
        ("/jobs", "jobs", "Jobs", show.jobs),
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


def _actions(context: PluginContext[Settings], pages: Pages, news: EventChannel) -> list[Route]:
    show = _view_data(context, pages)
    json = "application/json"
    gets: list[tuple[str, object, str, tuple[str, ...], tuple[Parameter, ...]]] = [
        ("/open", Enter(pages), "Open the console with a link", (), (_text("link", "The link."),)),
        ("/assets/{name}", Assets(), "Get a file of the console", (), ()),
        ("/pages/{plugin}/{page}", PluginPage(pages), "Show a page of a plugin", ("text/html",), ()),
        ("/requests/new", Feed(_requests(context)), "List new requests", (json,), (_AFTER, *_OF_REQUESTS)),
        ("/log/new", Feed(_lines(context)), "List new log lines", (json,), (_AFTER, *_OF_LINES)),
        ("/vitals", Vital(pages, show.vitals), "Show the vital signs", ("text/html",), ()),
        (
            "/events",
            News(pages, news, context.keep("last news", dict[str, str])),
            "Stream changes of the host",
            ("text/event-stream",),
            (),
        ),
        ("/palette", Palette(show.palette_entries), "List the entries of the command palette", (json,), ()),
        ("/jobs/{job}", JobState(pages), "Show a job's progress", (json,), ()),
    ]
    attempt = (_text("site", "The site."), _text("method", "The method."), _text("path", "The URI template."))
    requests, exchanges = _requests(context), _exchanges(context)
    trying = {
        "GET": _operation("Show the form of an operation", *attempt),
        "POST": _operation("Send the request of the form"),
    }
    changing = {
        "GET": _operation("Show the form of a setting", _text("key", "The setting.")),
        "POST": _operation("Show the difference of a change, or make it"),
    }
    posts: list[tuple[str, object, str]] = [
        ("/requests/{number}/replay", Replay(pages, requests, exchanges), "Send a request again"),
        ("/leave", Leave(pages), "Close the console"),
        ("/reload", Reload(pages), "Reload"),
        ("/plugins/{name}/state", Switch(pages), "Enable or disable a plugin"),
        ("/plugins/{name}/purge", Purge(pages), "Purge a disabled plugin's data"),
    ]
    return [
        Route("/try", Try(pages, requests), trying),
        Route("/settings/edit", Change(pages), changing),
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
    wrong: deque[Any] = context.keep(f"wrong lines {size}", lambda: deque(maxlen=size))
    return Lines(ring, wrong, context.keep("numbers", lambda: count(1)), context.plugin)


def _vitals(context: PluginContext[Settings]) -> Vitals:
    return Vitals(
        context.keep("vitals", dict),
        context.keep("lock of vitals", threading.Lock),
        context.keep("seen", dict),
        context.plugin,
        context.host,
    )


def _exchanges(context: PluginContext[Settings]) -> Exchanges:
    size = context.settings.requests
    return Exchanges(context.keep(f"exchanges {size}", lambda: deque(maxlen=size)), context.plugin)


def _link(context: PluginContext[Settings]) -> str:
    own = next((each.sites for each in context.host.plugins if each.name == context.plugin), ())
    on_ipv6 = any(each.site in own and ":" in each.address for each in context.host.listeners)
    base = address(context.host, own[0], "[::1]" if on_ipv6 else "127.0.0.1") if own else ""
    return f"{base}{PREFIX}/open?link={_gate(context).new_link()}"
