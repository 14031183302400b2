"""The resources of the service: what each request is answered with."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Final

import falcon
from pydantic import BaseModel, ConfigDict, Field

from plughost.http import EventChannel, Paging, ServerSentEvent, Text, read_body, send_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plughost.http import Request
    from plughost_bookmarks.store import Bookmark, Bookmarks

PREFIX: Final = "/bookmarks"

URL = Annotated[str, Field(max_length=2000, pattern=r"^https?://[!-~]+$", examples=["https://example.org/"])]
Title = Annotated[str, Text(max_length=200), Field(examples=["An example"])]
Tag = Annotated[str, Field(max_length=30, pattern=r"^[a-z0-9-]+$", examples=["news"])]
Tags = Annotated[tuple[Tag, ...], Field(max_length=10)]


class BookmarkDraft(BaseModel):
    """A bookmark as a client sends it.

    Attributes:
        url: Where it leads, in visible ASCII characters.
        title: What people read.
        tags: What it is about. Since version 1.1.
    """

    url: URL
    title: Title
    tags: Tags = ()


class BookmarkJSON(BookmarkDraft):
    """A bookmark as it is kept.

    Attributes:
        tags: What it is about. Since version 1.1; 1.0 does not show it.
        createdAt: When it was kept.
    """

    model_config = ConfigDict(title="Bookmark")

    id: int
    createdAt: datetime  # noqa: N815 - the name on the wire


PAGING: Final = Paging(model=BookmarkJSON, sort=("id", "title"), cursor=True)


class AllBookmarks:
    """The resource of all bookmarks."""

    def __init__(self, bookmarks: Bookmarks, channel: EventChannel, now: Callable[[], datetime]) -> None:
        """Take the bookmarks, the channel that tells of new ones, and the clock."""
        self._bookmarks = bookmarks
        self._channel = channel
        self._now = now

    def on_get(self, req: Request, resp: falcon.Response, q: str, tag: str, **asked: Any) -> None:
        """Search them."""
        page = PAGING.page(asked, q=q or None, tag=tag or None)
        found = page.send(req, resp, self._bookmarks.search(q, tag, page))
        resp.media = [_shown(bookmark, req.api_version) for bookmark in found]

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create one, and tell whoever follows."""
        draft = read_body(req, BookmarkDraft)
        bookmark = self._bookmarks.create(draft.url, draft.title, draft.tags, self._now())
        self._channel.publish(_event(bookmark))
        resp.status = falcon.HTTP_201
        resp.location = f"{PREFIX}/{bookmark.id}"
        resp.media = _shown(bookmark, req.api_version)


class OneBookmark:
    """The resource of one bookmark."""

    def __init__(self, bookmarks: Bookmarks) -> None:
        """Take the bookmarks."""
        self._bookmarks = bookmarks

    def on_get(self, req: Request, resp: falcon.Response, number: int) -> None:
        """Show it."""
        bookmark = self._bookmarks.get(number)
        if bookmark is None:
            raise falcon.HTTPNotFound(description="There is no such bookmark.")
        resp.media = _shown(bookmark, req.api_version)

    def on_delete(self, req: Request, resp: falcon.Response, number: int) -> None:
        """Remove it."""
        if not self._bookmarks.delete(number):
            raise falcon.HTTPNotFound(description="There is no such bookmark.")
        resp.status = falcon.HTTP_204


class LiveBookmarks:
    """The resource of the stream: each new bookmark, and for who comes back those that they missed."""

    def __init__(self, bookmarks: Bookmarks, channel: EventChannel) -> None:
        """Take the bookmarks, and the channel that tells of new ones."""
        self._bookmarks = bookmarks
        self._channel = channel

    def on_get(self, req: Request, resp: falcon.Response, last_event_id: int | None) -> None:
        """Follow them."""

        def missed() -> Iterator[ServerSentEvent]:
            return map(_event, () if last_event_id is None else self._bookmarks.after(last_event_id))

        send_events(resp, self._channel, missed=missed)


class WebPage:
    """The resource of the page for people, which may run its own script and no other."""

    def __init__(self) -> None:
        """Read the page."""
        self._text = (files(__package__) / "page.html").read_text(encoding="utf-8")
        script = re.search("<script>(.*)</script>", self._text, re.DOTALL)
        assert script is not None
        digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
        self._policy = f"default-src 'none'; script-src 'sha256-{digest}'; connect-src 'self'; frame-ancestors 'none'"

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Show it."""
        resp.content_type = "text/html; charset=utf-8"
        resp.set_header("Content-Security-Policy", self._policy)
        resp.text = self._text


def _shown(bookmark: Bookmark, version: str | None) -> dict[str, Any]:
    """Return a bookmark as a minor version has it."""
    shown = {"id": bookmark.id, "url": bookmark.url, "title": bookmark.title, "createdAt": bookmark.created_at}
    return shown if version == "1.0" else {**shown, "tags": bookmark.tags}


def _event(bookmark: Bookmark) -> ServerSentEvent:
    return ServerSentEvent(name="added", id=bookmark.id, data=_shown(bookmark, None))
