"""The Falcon resources of the service."""

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
        url: The address, in visible ASCII characters.
        title: The title to show.
        tags: Its topics. Since version 1.1.
    """

    url: URL
    title: Title
    tags: Tags = ()


class BookmarkJSON(BookmarkDraft):
    """A bookmark as clients see it.

    Attributes:
        tags: Its topics. Since version 1.1; absent in 1.0.
        createdAt: When it was created.
    """

    model_config = ConfigDict(title="Bookmark")

    id: int
    createdAt: datetime  # noqa: N815 - the name in JSON


PAGING: Final = Paging(model=BookmarkJSON, sort=("id", "title"), cursor=True)


class AllBookmarks:
    """The resource of all bookmarks."""

    def __init__(self, bookmarks: Bookmarks, channel: EventChannel, now: Callable[[], datetime]) -> None:
        """Take the bookmarks, the channel that announces new ones, and the clock."""
        self._bookmarks = bookmarks
        self._channel = channel
        self._now = now

    def on_get(self, req: Request, resp: falcon.Response, q: str, tag: str, **query: Any) -> None:
        """Return a page of search results."""
        page = PAGING.page(query, q=q or None, tag=tag or None)
        found = page.send(req, resp, self._bookmarks.search(q, tag, page))
        resp.media = [_as_json(bookmark, req.api_version) for bookmark in found]

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create a bookmark, and publish it to followers."""
        draft = read_body(req, BookmarkDraft)
        bookmark = self._bookmarks.create(draft.url, draft.title, draft.tags, self._now())
        self._channel.publish(_event(bookmark))
        resp.status = falcon.HTTP_201
        resp.location = f"{PREFIX}/{bookmark.id}"
        resp.media = _as_json(bookmark, req.api_version)


class OneBookmark:
    """The resource of one bookmark."""

    def __init__(self, bookmarks: Bookmarks) -> None:
        """Take the bookmarks."""
        self._bookmarks = bookmarks

    def on_get(self, req: Request, resp: falcon.Response, number: int) -> None:
        """Return the bookmark."""
        bookmark = self._bookmarks.get(number)
        if bookmark is None:
            raise falcon.HTTPNotFound(description="No bookmark has this id.")
        resp.media = _as_json(bookmark, req.api_version)

    def on_delete(self, req: Request, resp: falcon.Response, number: int) -> None:
        """Delete the bookmark."""
        if not self._bookmarks.delete(number):
            raise falcon.HTTPNotFound(description="No bookmark has this id.")
        resp.status = falcon.HTTP_204


class LiveBookmarks:
    """The event stream of new bookmarks. A client that reconnects first gets those that it missed."""

    def __init__(self, bookmarks: Bookmarks, channel: EventChannel) -> None:
        """Take the bookmarks, and the channel that announces new ones."""
        self._bookmarks = bookmarks
        self._channel = channel

    def on_get(self, req: Request, resp: falcon.Response, last_event_id: int | None) -> None:
        """Start the stream."""

        def missed() -> Iterator[ServerSentEvent]:
            return map(_event, () if last_event_id is None else self._bookmarks.after(last_event_id))

        send_events(resp, self._channel, missed=missed)


class WebPage:
    """The HTML page. Its content security policy allows only its own script."""

    def __init__(self) -> None:
        """Read the page from the package."""
        self._text = (files(__package__) / "page.html").read_text(encoding="utf-8")
        script = re.search("<script>(.*)</script>", self._text, re.DOTALL)
        assert script is not None
        digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
        self._policy = f"default-src 'none'; script-src 'sha256-{digest}'; connect-src 'self'; frame-ancestors 'none'"

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the page."""
        resp.content_type = "text/html; charset=utf-8"
        resp.set_header("Content-Security-Policy", self._policy)
        resp.text = self._text


def _as_json(bookmark: Bookmark, version: str | None) -> dict[str, Any]:
    """Return a bookmark as JSON of a minor version."""
    fields = {"id": bookmark.id, "url": bookmark.url, "title": bookmark.title, "createdAt": bookmark.created_at}
    return fields if version == "1.0" else {**fields, "tags": bookmark.tags}


def _event(bookmark: Bookmark) -> ServerSentEvent:
    return ServerSentEvent(name="added", id=bookmark.id, data=_as_json(bookmark, None))
