"""The resources of the console: pages, data for its scripts, and actions of its buttons."""

from __future__ import annotations

from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost.http import ServerSentEvent, send_events
from plughost_dev_console.guard import NO_SESSION, PREFIX, cookie_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plughost import ReloadReport
    from plughost.http import EventChannel, Request
    from plughost_dev_console.console import Console

_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class ConsoleRedirect:
    """Redirects `/` to the console."""

    public = True

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Redirect to the console."""
        raise falcon.HTTPFound(PREFIX)


class Enter:
    """Exchanges a one-time link for a session."""

    public = True

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_get(self, req: Request, resp: falcon.Response, link: str) -> None:
        """Start a session, and redirect to the console."""
        gate, audit = self._console.gate, self._console.context.audit
        if req.method == "HEAD" and gate.is_open(link):
            raise falcon.HTTPSeeOther(PREFIX)  # a link preview or scanner must not use up the link
        cookie = gate.enter(link)
        if cookie is None:
            if req.context.session is not None:  # for example, by the back button
                raise falcon.HTTPSeeOther(PREFIX)
            audit("console", "refused", req=req, action="open")
            raise falcon.HTTPForbidden(
                title=NO_SESSION, description="This link was used already, has expired, or is from an earlier start."
            )
        audit("console", "ok", req=req, action="open")
        resp.set_cookie(
            cookie_name(self._console.host, req),
            cookie,
            path=PREFIX,
            http_only=True,
            same_site="Strict",
            secure=req.scheme == "https",
        )
        resp.status = falcon.HTTP_303
        resp.location = PREFIX


class Assets:
    """The console's scripts, style sheet and logo."""

    public = True

    def __init__(self) -> None:
        folder = resources.files(__package__) / "static"
        self._files = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}

    def on_get(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Send a file."""
        if name not in self._files:
            raise falcon.HTTPNotFound
        resp.content_type = _TYPES[name[name.rindex(".") :]]
        resp.data = self._files[name]


class View:
    """A page with data about the host."""

    def __init__(self, console: Console, template: str, title: str, show: Callable[..., Mapping[str, Any]]) -> None:
        """Take the template, and the function that returns its values for the request and the fields of the path."""
        self._console = console
        self._template = template
        self._title = title
        self._show = show

    def on_get(self, req: Request, resp: falcon.Response, **fields: Any) -> None:
        """Render the page."""
        shown = {"title": self._title, **self._show(req, **fields)}
        self._console.send(req, resp, self._template, **shown)


class Data:
    """JSON for the scripts, which ask for it every second or so."""

    def __init__(self, find: Callable[..., Any]) -> None:
        self._find = find

    def on_get(self, req: Request, resp: falcon.Response, **fields: Any) -> None:
        """Return the data."""
        req.context.unlogged = True
        resp.media = self._find(**fields)


class News:
    """The event stream of the host's changes."""

    def __init__(self, console: Console, channel: EventChannel) -> None:
        self._console = console
        self._channel = channel

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Send the current generation and the last news, which a tab may have missed, then new events."""
        req.context.unlogged = True
        text = self._console.last_news.get("text", "")
        now = ServerSentEvent(
            name="state", data={"generation": self._console.host.generation, "text": text, "old": True}
        )
        send_events(resp, self._channel, missed=lambda: [now])


class Button:
    """A button: a form, which the guard has checked."""

    def __init__(self, press: Callable[..., None]) -> None:
        self._press = press

    def on_post(self, req: Request, resp: falcon.Response, **fields: str) -> None:
        """Do what the button says."""
        self._press(req, resp, **fields)


class Actions:
    """What the buttons do to the host."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def leave(self, req: Request, resp: falcon.Response) -> None:
        """End the session, and delete the cookie."""
        self._console.gate.leave(req.context.session)
        self._console.context.audit("console", "ok", req=req, action="leave")
        resp.unset_cookie(cookie_name(self._console.host, req), path=PREFIX, same_site="Strict")
        resp.status = falcon.HTTP_303
        resp.location = PREFIX

    def reload(self, req: Request, resp: falcon.Response) -> None:
        """Reload the host."""
        start_job(self._console, req, resp, "reload", self._console.control.reload)

    def switch(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Enable or disable a plugin."""
        action = {"enabled": "enable", "disabled": "disable"}.get(req.context.form.get("state"))
        if action is None:
            raise falcon.HTTPBadRequest(description="The state must be enabled or disabled.")
        if name not in {each.name for each in self._console.host.plugins}:
            raise falcon.HTTPNotFound(description=f"There is no plugin {name}.")
        if name == self._console.own:
            raise falcon.HTTPConflict(description=f"The console can't disable itself. Run plughost disable {name}.")
        work = partial(self._console.control.switch, name, enabled=action == "enable")
        start_job(self._console, req, resp, action, work, name)

    def purge(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Purge the data of a disabled plugin."""
        if not any(each.name == name and each.state == "disabled" for each in self._console.host.plugins):
            raise falcon.HTTPConflict(
                description=f"Only a disabled plugin's data can be purged; {name} is not disabled."
            )

        def work(origin: Mapping[str, Any]) -> str:
            return f"Deleted: {', '.join(self._console.control.purge(name, origin=origin))}."

        start_job(self._console, req, resp, "purge", work, name)


def start_job(
    console: Console,
    req: Request,
    resp: falcon.Response,
    action: str,
    work: Callable[..., ReloadReport | str],
    *target: str,
    before: Mapping[str, str] | None = None,
) -> None:
    """Start a job, and redirect to its result, which is also audited."""
    origin = {"where": req.remote_addr, "request_id": req.request_id}

    def audited() -> ReloadReport | str:
        with console.context.audited("console", req=req, action=action, target=target or None) as event:
            result = work(origin=origin)
            event["outcome"] = "ok" if isinstance(result, str) or not result.problems else "failed"
            return result

    job = console.jobs.start(" ".join((action.capitalize(), *target)), audited, before)
    if job is None:
        raise falcon.HTTPConflict(description="Another change is in progress. Wait until it is done.")
    resp.status = falcon.HTTP_303
    resp.location = f"{PREFIX}/plugins?job={job}"
