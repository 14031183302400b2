"""The development console at `/q/dev`, and the redirect from `/` (CONTRACT 8)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from plughost import Middleware, Observer, Operation, Parameter, Route, RouteGroup, hookimpl
from plughost.http import EventChannel, ServerSentEvent
from plughost_dev_console.browsing import Browsing
from plughost_dev_console.console import Console
from plughost_dev_console.guard import PREFIX, Guard
from plughost_dev_console.html import HTMLErrors
from plughost_dev_console.offers import address
from plughost_dev_console.recording import MAX_PER_SECOND
from plughost_dev_console.resources import Actions, Assets, Button, ConsoleRedirect, Data, Enter, News, View
from plughost_dev_console.setting_change import Change
from plughost_dev_console.settings import Settings
from plughost_dev_console.try_page import Try
from plughost_dev_console.view_data import ViewData

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from plughost import Event, PluginContext
    from plughost_dev_console.view_data import Shown

_BODY_LIMIT: Final = 256 * 1024  # a form can contain the body of another request


def _query(name: str, description: str, default: str | int = "") -> Parameter:
    schema = {"type": "integer" if isinstance(default, int) else "string", "default": default}
    return Parameter(name=name, place="query", description=description, schema=schema, allow_empty=True)


_AFTER: Final = _query("after", "The number of the newest known item.", 0)
_OF_LINES: Final = (_query("level", "The lowest level."), _query("q", "Words that a line contains."))
_OF_REQUESTS: Final = (
    _query("plugin", "The plugin; `none` for no plugin."),
    _query("status", "The status's first digit, or `bad`."),
    _query("minutes", "The maximum age; 0 for any.", 0),
    _query("q", "Words that path, method or id contain."),
    _query("order", "`slowest`, or by time."),
)
_OF_ROWS: Final = (
    _query("q", "Text that rows contain."),
    _query("page", "The page, from 1.", 1),
    _query("order", "The column to sort by."),
    _query("way", "`down` for the largest first."),
    _query("column", "The column to filter by."),
    _query("value", "The value in that column."),
)
_OF_ATTEMPTS: Final = (
    _query("site", "The site."),
    _query("method", "The method."),
    _query("path", "The URI template."),
)


class ConsolePlugin:
    """The plugin, with one instance for each host."""

    def __init__(self) -> None:
        self._unsubscribe: list[Callable[[], None]] = []
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
        console = Console(context)
        if not self._unsubscribe:  # early, to record the log lines of failing plugins
            self._unsubscribe = [
                context.host.lines.subscribe(console.lines),
                context.host.events.subscribe(partial(_publish_reload, console, self._news), "reload"),
            ]
        return [
            Middleware(name="console-guard", component=Guard(console.gate, context.host)),
            Middleware(name="console-headers", component=console.exchanges, scope="host"),
        ]

    @hookimpl
    def register_observers(self, context: PluginContext[Settings]) -> list[Observer]:
        """Record the host's requests; under load, only the first ones of each second."""
        if not context.dev:
            return []
        console = Console(context)
        return [
            Observer(name="requests", observe=console.requests.observe, at_most=MAX_PER_SECOND, timings=True),
            Observer(name="vitals", observe_times=console.vitals.observe),
        ]

    @hookimpl
    def register_routes(self, context: PluginContext[Settings]) -> list[RouteGroup]:
        """Mount the console, with `--dev` only."""
        if not context.dev:
            return []
        console = Console(context)
        group = RouteGroup(
            prefix=PREFIX,
            routes=_routes(console, self._news),
            errors=HTMLErrors(console.environment),
            body_limit=_BODY_LIMIT,
            title="Development console",
            described=False,
        )
        if not context.settings.root:
            return [group]
        root = Route("", ConsoleRedirect(), {"GET": _operation("Go to the console")})
        return [RouteGroup(prefix="/", routes=(root,), errors=group.errors, described=False), group]

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
        console = Console(context)
        context.add_query("link", lambda: {"link": _link(console)})
        minutes = context.settings.link_lifetime / 60
        within = "1 minute" if minutes == 1 else f"{minutes:g} minutes"
        context.announce(f"Console: {_link(console)}")
        context.announce(f"  opens once, within {within}; plughost dev-console makes another link")

    @hookimpl
    def stopping(self, context: PluginContext[Settings]) -> None:
        """End the subscriptions."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()


def _publish_reload(console: Console, news: EventChannel, event: Event) -> None:
    """Record a reload, and publish it to all open tabs."""
    report = event.fields
    console.vitals.record_reload(report)
    refused = "The reload was refused." if report["problems"] else "The reload needs a restart."
    begun = f"Generation {report['generation']} serves." if report["swapped"] else refused
    parts = [
        f"{word}: {', '.join(each if isinstance(each, str) else each[0] for each in report[word])}"
        for word in ("added", "changed", "disabled", "removed", "failed", "blocked")
        if report.get(word)
    ]
    text = console.last_news["text"] = f"{begun} {'; '.join(parts)}"
    news.publish(ServerSentEvent(name="state", data={"generation": report["generation"], "text": text, "old": False}))


def _routes(console: Console, news: EventChannel) -> tuple[Route, ...]:
    show, browsing = ViewData(console), Browsing(console.control)
    attempt, change, actions = Try(console), Change(console), Actions(console)

    def view(path: str, template: str, title: str, values: Callable[..., Shown], *parameters: Parameter) -> Route:
        operation = _operation(f"Show: {title}", *parameters)
        return Route(path, View(console, template, title, values), {"GET": operation})

    def data(path: str, summary: str, find: Callable[..., object], *parameters: Parameter) -> Route:
        return Route(path, Data(find), {"GET": _operation(summary, *parameters, kind="application/json")})

    def button(path: str, summary: str, press: Callable[..., None]) -> Route:
        return Route(path, Button(press), {"POST": _operation(summary, kind="")})

    def form(path: str, resource: object, shown: str, sent: str, *parameters: Parameter) -> Route:
        return Route(path, resource, {"GET": _operation(shown, *parameters), "POST": _operation(sent)})

    return (
        view("", "overview", "Overview", show.overview),
        view("/plugins", "plugins", "Plugins", show.plugins, _query("job", "The job whose result is shown.")),
        view("/plugins/{name}", "plugin", "Plugin", show.plugin),
        view("/routes", "routes", "Routes", show.routes),
        view("/requests", "requests", "Requests", show.requests, *_OF_REQUESTS),
        view("/requests/{number}", "request", "Request", show.request),
        view("/log", "log", "Log", show.log, *_OF_LINES),
        view("/threads", "threads", "Threads", show.threads),
        view("/stores", "stores", "Stores", browsing.stores),
        view("/stores/{store}/{table}", "table", "Table", browsing.table, *_OF_ROWS),
        view("/settings", "settings", "Settings", show.settings),
        view("/jobs", "jobs", "Jobs", show.jobs),
        view("/health", "health", "Health", show.health),
        view("/hooks", "hooks", "Hooks", show.hooks),
        view("/load", "load", "Load report", show.load),
        view("/pages/{plugin}/{page}", "page", "Page", show.page),
        view("/vitals", "_vitals", "Vital signs", show.live_vitals),
        data("/requests/new", "List new requests", console.requests.since, _AFTER, *_OF_REQUESTS),
        data("/log/new", "List new log lines", console.lines.since, _AFTER, *_OF_LINES),
        data("/palette", "List the entries of the command palette", show.palette),
        data("/jobs/{job}", "Show a job's progress", show.job),
        button("/requests/{number}/replay", "Send a request again", attempt.replay),
        button("/leave", "Close the console", actions.leave),
        button("/reload", "Reload", actions.reload),
        button("/plugins/{name}/state", "Enable or disable a plugin", actions.switch),
        button("/plugins/{name}/purge", "Purge a disabled plugin's data", actions.purge),
        Route("/open", Enter(console), {"GET": _operation("Open the console", _query("link", "The link."), kind="")}),
        Route("/assets/{name}", Assets(), {"GET": _operation("Get a file of the console", kind="")}),
        Route("/events", News(console, news), {"GET": _operation("Stream changes", kind="text/event-stream")}),
        form("/try", attempt, "Show the form of an operation", "Send the request of the form", *_OF_ATTEMPTS),
        form(
            "/settings/edit",
            change,
            "Show the form of a setting",
            "Show the difference of a change, or make it",
            _query("key", "The setting."),
        ),
    )


def _operation(summary: str, *parameters: Parameter, kind: str = "text/html") -> Operation:
    return Operation(summary=summary, produces=(kind,) if kind else (), parameters=parameters)


def _link(console: Console) -> str:
    host = console.host
    own = next((each.sites for each in host.plugins if each.name == console.own), ())
    on_ipv6 = any(each.site in own and ":" in each.address for each in host.listeners)
    base = address(host, own[0], "[::1]" if on_ipv6 else "127.0.0.1") if own else ""
    return f"{base}{PREFIX}/open?link={console.gate.new_link()}"
