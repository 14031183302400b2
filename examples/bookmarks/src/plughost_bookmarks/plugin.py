"""The plugin: what it mounts, keeps and does by the clock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, Field

from plughost import Job, Operation, Parameter, Response, Route, RouteGroup, Store, hookimpl
from plughost.http import MAX_ID, EventChannel
from plughost_bookmarks.resources import (
    PAGING,
    PREFIX,
    AllBookmarks,
    BookmarkDraft,
    BookmarkJSON,
    LiveBookmarks,
    OneBookmark,
    WebPage,
)
from plughost_bookmarks.store import STORE, Bookmarks

if TYPE_CHECKING:
    from plughost import JobRun, PluginContext


class Settings(BaseModel):
    """The table `[plugins.bookmarks]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keep_days: int = Field(0, ge=0, description="Days after which a bookmark is removed; 0 keeps them for ever")


def _text(longest: int) -> dict[str, int | str]:
    return {"type": "string", "maxLength": longest, "default": ""}


_ID: Final = Parameter(
    name="number",
    place="path",
    description="The bookmark's id.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [1]},
    refusal=404,
)
_ABSENT: Final = Response(description="There is no such bookmark.")
_SEARCH: Final = Operation(
    id="searchBookmarks",
    summary="Search the bookmarks",
    description="Those that have all the words, as they were kept; `sort=-id` has the newest first.",
    parameters=(
        Parameter(
            name="q",
            place="query",
            description="Parts of title, URL and tags, whatever their letter case.",
            schema=_text(200),
            allow_empty=True,
        ),
        Parameter(name="tag", place="query", description="A tag.", schema=_text(30), allow_empty=True),
        *PAGING.parameters,
    ),
    responses={200: Response(description="A page of them.", model=list[BookmarkJSON], headers=PAGING.headers)},
)
_CREATE: Final = Operation(
    id="createBookmark",
    summary="Create a bookmark",
    description="One for each URL: the same URL again is a 409. Followers get an event.",
    request=BookmarkDraft,
    responses={
        201: Response(
            description="The bookmark.", model=BookmarkJSON, headers={"Location": "The path of the new bookmark."}
        ),
        409: Response(description="There is a bookmark with this URL."),
    },
    examples={"a site": {"url": "https://example.org/", "title": "An example", "tags": ["news"]}},
)
_GET: Final = Operation(
    id="getBookmark",
    summary="Get a bookmark by its id",
    description="Version 1.0 leaves its tags out.",
    parameters=(_ID,),
    responses={200: Response(description="The bookmark.", model=BookmarkJSON), 404: _ABSENT},
)
_DELETE: Final = Operation(
    id="deleteBookmark",
    summary="Delete a bookmark by its id",
    description="For good; deleting it again is a 404.",
    parameters=(_ID,),
    responses={204: Response(description="The bookmark is gone."), 404: _ABSENT},
)
_EVENT: Final = 'event: added\nid: 1\ndata: {"id": 1, "url": "https://example.org/", "title": "An example"}\n\n'
_FOLLOW: Final = Operation(
    id="followBookmarks",
    summary="Follow new bookmarks",
    description="An event `added` for each, with the bookmark as JSON; its id is the bookmark's.",
    parameters=(
        Parameter(
            name="Last-Event-ID",
            place="header",
            description="The last bookmark that the client knows; browsers send it when they come back.",
            schema={"type": "integer", "minimum": 0, "maximum": MAX_ID},
        ),
    ),
    produces=("text/event-stream",),
    responses={200: Response(description="The events.", model=str, media_types=("text/event-stream",), example=_EVENT)},
)
_PAGE: Final = Operation(
    id="showBookmarks",
    summary="Show the bookmarks as a page",
    description="HTML that lists the bookmarks, newest first, and follows new ones.",
    produces=("text/html",),
    responses={
        200: Response(description="The page.", model=str, media_types=("text/html",), example="<!doctype html>")
    },
)


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model of `[plugins.bookmarks]`."""
    return Settings


@hookimpl
def register_stores() -> list[Store]:
    """Offer the store `bookmarks`."""
    return [STORE]


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the service."""
    bookmarks, channel = Bookmarks(context.store(STORE)), EventChannel()
    routes = (
        Route("", AllBookmarks(bookmarks, channel, context.now), {"GET": _SEARCH, "POST": _CREATE}),
        Route("/events", LiveBookmarks(bookmarks, channel), {"GET": _FOLLOW}),
        Route("/page", WebPage(), {"GET": _PAGE}),
        Route("/{number}", OneBookmark(bookmarks), {"GET": _GET, "DELETE": _DELETE}),
    )
    return [RouteGroup(prefix=PREFIX, routes=routes, versions=("1.0", "1.1"), title="Bookmarks")]


@hookimpl
def register_jobs(context: PluginContext[Settings]) -> list[Job]:
    """Remove old bookmarks every day, where the settings want it."""
    kept = timedelta(days=context.settings.keep_days)

    def sweep(run: JobRun) -> None:
        removed = Bookmarks(context.store(STORE)).delete_older(context.now() - kept)
        context.logger.info("old bookmarks removed", bookmarks=removed)

    description = f"Remove bookmarks older than {kept.days} days."
    return [Job(name="sweep", run=sweep, cron="0 4 * * *", description=description)] if kept else []
