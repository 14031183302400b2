"""The resources of the console: pages, data for its scripts, and actions of its buttons."""

from __future__ import annotations

from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost.http import ServerSentEvent, send_events
from plughost_dev_console import view_data
from plughost_dev_console.guard import NO_SESSION, PREFIX, cookie_name
from plughost_dev_console.html import MEDIA_TYPE, Pages, inserted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plughost import ReloadReport
    from plughost.http import EventChannel, Request
    from plughost_dev_console.lines import Lines
    from plughost_dev_console.recording import Requests

TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class ConsoleRedirect:
    """Redirects `/` to the console."""

    public = True

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Redirect to the console."""
        raise falcon.HTTPFound(PREFIX)


class Enter:
    """Exchanges a one-time link for a session."""

    public = True

    def __init__(self, pages: Pages) -> None:
        """Take the pages and their gate."""
        self._pages = pages

    def on_get(self, req: Request, resp: falcon.Response, link: str) -> None:
        """Start a session, and redirect to the console."""
        if req.method == "HEAD" and self._pages.gate.is_open(link):
            raise falcon.HTTPSeeOther(PREFIX)  # a link preview or scanner must not use up the link
        cookie = self._pages.gate.enter(link)
        if cookie is None:
            if req.context.session is not None:  # for example, by the back button
                raise falcon.HTTPSeeOther(PREFIX)
            self._pages.context.audit("console", "refused", req=req, action="open")
            raise falcon.HTTPForbidden(
                title=NO_SESSION, description="This link was used already, has expired, or is from an earlier start."
            )
        self._pages.context.audit("console", "ok", req=req, action="open")
        resp.set_cookie(
            cookie_name(self._pages.host, req),
            cookie,
            path=PREFIX,
            http_only=True,
            same_site="Strict",
            secure=req.scheme == "https",
        )
        resp.status = falcon.HTTP_303
        resp.location = PREFIX


class Leave:
    """Ends a session."""

    def __init__(self, pages: Pages) -> None:
        """Take the pages and their gate."""
        self._pages = pages

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """End the session, and delete the cookie."""
        self._pages.gate.leave(req.context.session)
        self._pages.context.audit("console", "ok", req=req, action="leave")
        resp.unset_cookie(cookie_name(self._pages.host, req), path=PREFIX, same_site="Strict")
        resp.status = falcon.HTTP_303
        resp.location = PREFIX


class Assets:
    """The console's scripts, style sheet and logo."""

    public = True

    def __init__(self) -> None:
        """Read the files."""
        folder = resources.files(__package__) / "static"
        self._files = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}

    def on_get(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Send a file."""
        if name not in self._files:
            raise falcon.HTTPNotFound
        resp.content_type = TYPES[name[name.rindex(".") :]]
        resp.data = self._files[name]


class View:
    """A page with data about the host."""

    def __init__(self, pages: Pages, template: str, title: str, show: Callable[..., Mapping[str, Any]]) -> None:
        """Take the template and the function that returns its values.

        Args:
            pages: Renders the page.
            template: The template.
            title: The page's title.
            show: Takes the request and the fields of the path; returns the template's values.
        """
        self._pages = pages
        self._template = template
        self._title = title
        self._show = show

    def on_get(self, req: Request, resp: falcon.Response, **fields: Any) -> None:
        """Render the page."""
        shown = {"title": self._title, **self._show(req, **fields)}
        resp.content_type = MEDIA_TYPE
        resp.text = self._pages.render(req, self._template, **shown)


class Feed:
    """New records since the script's last request."""

    def __init__(self, records: Requests | Lines) -> None:
        """Take the records."""
        self._records = records

    def on_get(self, req: Request, resp: falcon.Response, after: int, **wanted: Any) -> None:
        """Return the matching records after the number `after`."""
        req.context.unlogged = True
        resp.media = self._records.since(after, **wanted)


class Vital:
    """The vital signs, as HTML for the overview."""

    def __init__(self, pages: Pages, signs: Callable[[], Mapping[str, Any]]) -> None:
        """Take the function that returns them."""
        self._pages = pages
        self._signs = signs

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Render the vital signs."""
        req.context.unlogged = True
        resp.content_type = MEDIA_TYPE
        resp.text = self._pages.environment.get_template("_vitals.html").render(self._signs())


class News:
    """The event stream of the host's changes."""

    def __init__(self, pages: Pages, channel: EventChannel, last: Mapping[str, str]) -> None:
        """Take the channel, and the `text` of the last news, which a tab may have missed."""
        self._pages = pages
        self._channel = channel
        self._last = last

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Send the current generation, then new events."""
        req.context.unlogged = True
        data = {"generation": self._pages.host.generation, "text": self._last.get("text", ""), "old": True}
        now = ServerSentEvent(name="state", data=data)
        send_events(resp, self._channel, missed=lambda: [now])


class Palette:
    """The entries of the command palette."""

    def __init__(self, find: Callable[[], list[dict[str, str]]]) -> None:
        """Take the function that returns the entries."""
        self._find = find

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the entries."""
        req.context.unlogged = True
        resp.media = self._find()


class JobState:
    """The state of a job."""

    def __init__(self, pages: Pages) -> None:
        """Take the pages and their jobs."""
        self._pages = pages

    def on_get(self, req: Request, resp: falcon.Response, job: str) -> None:
        """Return whether the job is done."""
        req.context.unlogged = True
        found = self._pages.jobs.get(job)
        if found is None:
            raise falcon.HTTPNotFound
        resp.media = {"done": found["done"]}


class Reload:
    """The button that reloads."""

    def __init__(self, pages: Pages) -> None:
        """Take the pages and their jobs."""
        self._pages = pages

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Start a reload, and redirect to its result."""
        start_job(self._pages, req, resp, "reload", self._pages.control.reload)


class Switch:
    """The buttons that enable and disable a plugin."""

    def __init__(self, pages: Pages) -> None:
        """Take the pages and their jobs."""
        self._pages = pages

    def on_post(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Start the form's action, and redirect to its result."""
        wanted = req.context.form.get("state")
        if wanted not in ("enabled", "disabled"):
            raise falcon.HTTPBadRequest(description="The state must be enabled or disabled.")
        if name not in {each.name for each in self._pages.host.plugins}:
            raise falcon.HTTPNotFound(description=f"There is no plugin {name}.")
        if name == self._pages.own:
            raise falcon.HTTPConflict(description=f"The console can't disable itself. Run plughost disable {name}.")
        action = "enable" if wanted == "enabled" else "disable"
        start_job(
            self._pages, req, resp, action, partial(self._pages.control.switch, name, enabled=action == "enable"), name
        )


class Purge:
    """The button that purges the data of a disabled plugin."""

    def __init__(self, pages: Pages) -> None:
        """Take the pages and their jobs."""
        self._pages = pages

    def on_post(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Start the purge, and redirect to its result."""
        if not any(each.name == name and each.state == "disabled" for each in self._pages.host.plugins):
            raise falcon.HTTPConflict(
                description=f"Only a disabled plugin's data can be purged; {name} is not disabled."
            )

        def work(origin: Mapping[str, Any]) -> str:
            return f"Deleted: {', '.join(self._pages.control.purge(name, origin=origin))}."

        start_job(self._pages, req, resp, "purge", work, name)


def start_job(
    pages: Pages,
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
        with pages.context.audited("console", req=req, action=action, target=target or None) as event:
            result = work(origin=origin)
            event["outcome"] = "ok" if isinstance(result, str) or result.ok else "failed"
            return result

    job = pages.jobs.start(" ".join((action.capitalize(), *target)), audited, before)
    if job is None:
        raise falcon.HTTPConflict(description="Another change is in progress. Wait until it is done.")
    resp.status = falcon.HTTP_303
    resp.location = f"{PREFIX}/plugins?job={job}"


class PluginPage:
    """A page of another plugin."""

    def __init__(self, pages: Pages) -> None:
        """Take the pages."""
        self._pages = pages

    def on_get(self, req: Request, resp: falcon.Response, plugin: str, page: str) -> None:
        """Render the page inside the console's layout."""
        active = (each for each in self._pages.host.plugins if each.name == plugin and each.state == "active")
        found = next((one for each in active for one in each.declared.pages if one.name == page), None)
        if found is None:
            raise falcon.HTTPNotFound(description=f"The plugin {plugin} has no page {page}.")
        problem, body = view_data.run_bounded(found.render)
        resp.content_type = MEDIA_TYPE
        resp.text = self._pages.render(
            req, "page", found.title, plugin=plugin, body=inserted(str(body or "")), problem=problem
        )
