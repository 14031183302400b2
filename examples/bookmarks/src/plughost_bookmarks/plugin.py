"""The hooks of the plugin: settings, store, routes and a scheduled job."""

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

    keep_days: int = Field(0, ge=0, description="Days until a bookmark is removed; 0 keeps all")


def _text_schema(max_length: int) -> dict[str, int | str]:
    return {"type": "string", "maxLength": max_length, "default": ""}


_ID: Final = Parameter(
    name="number",
    place="path",
    description="The bookmark's id.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [1]},
    refusal=404,
)
_NOT_FOUND: Final = Response(description="No bookmark has this id.")
_SEARCH: Final = Operation(
    id="searchBookmarks",
    summary="Search the bookmarks",
    description="A match contains all the words. Oldest first; `sort=-id` gives the newest first.",
    parameters=(
        Parameter(
            name="q",
            place="query",
            description="Words to find in title, URL and tags; case is ignored.",
            schema=_text_schema(200),
            allow_empty=True,
        ),
        Parameter(name="tag", place="query", description="A tag.", schema=_text_schema(30), allow_empty=True),
        *PAGING.parameters,
    ),
    responses={
        200: Response(description="A page of bookmarks.", model=list[BookmarkJSON], headers=PAGING.headers),
        400: Response(description="The cursor is not one of this list."),
    },
)
_CREATE: Final = Operation(
    id="createBookmark",
    summary="Create a bookmark",
    description="A URL can have only one bookmark: the same URL again is a 409. Followers get an event.",
    request=BookmarkDraft,
    responses={
        201: Response(
            description="The bookmark.", model=BookmarkJSON, headers={"Location": "The path of the new bookmark."}
        ),
        409: Response(description="Another bookmark has this URL."),
    },
    examples={"a site": {"url": "https://example.org/", "title": "An example", "tags": ["news"]}},
)
_GET: Final = Operation(
    id="getBookmark",
    summary="Get a bookmark by its id",
    description="Version 1.0 omits the tags.",
    parameters=(_ID,),
    responses={200: Response(description="The bookmark.", model=BookmarkJSON), 404: _NOT_FOUND},
)
_DELETE: Final = Operation(
    id="deleteBookmark",
    summary="Delete a bookmark by its id",
    description="It can't be undone; deleting it again is a 404.",
    parameters=(_ID,),
    responses={204: Response(description="The bookmark is gone."), 404: _NOT_FOUND},
)
_EVENT: Final = 'event: added\nid: 1\ndata: {"id": 1, "url": "https://example.org/", "title": "An example"}\n\n'
_FOLLOW: Final = Operation(
    id="followBookmarks",
    summary="Follow new bookmarks",
    description="An event `added` for each new bookmark: the bookmark as JSON, with the bookmark's id as event id.",
    parameters=(
        Parameter(
            name="Last-Event-ID",
            place="header",
            description="The last event id that the client received; browsers send it when they reconnect.",
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
    """Return the model that validates `[plugins.bookmarks]`."""
    return Settings


@hookimpl
def register_stores() -> list[Store]:
    """Declare the store `bookmarks`."""
    return [STORE]


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the service at `/bookmarks`."""
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
    """Remove old bookmarks every day, if `keep_days` is set."""
    max_age = timedelta(days=context.settings.keep_days)

    def sweep(run: JobRun) -> None:
        removed = Bookmarks(context.store(STORE)).delete_older(context.now() - max_age)
        context.logger.info("old bookmarks removed", bookmarks=removed)

    description = f"Remove bookmarks older than {max_age.days} days."
    return [Job(name="sweep", run=sweep, cron="0 4 * * *", description=description)] if max_age else []
