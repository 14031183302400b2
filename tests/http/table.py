"""A plugin for the rules that hold everywhere, and the lanes to reach it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import falcon
from pydantic import BaseModel

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import PLAIN_TEXT
from plughost.http._json.codec import read_body
from plughost.stores import Busy, Duplicate, StoreError, Unavailable

if TYPE_CHECKING:
    from plughost._api.context import PluginContext

LIMIT = 2000


class Note(BaseModel):
    """The body of a POST."""

    text: str


class Item:
    """Echoes its name."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer with the name in the path."""
        resp.media = {"name": name}

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer with the body."""
        resp.status = falcon.HTTP_201
        resp.location = "/table/items/new"
        resp.media = read_body(req, Note).model_dump()

    def on_put(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer with the media that Falcon reads."""
        resp.media = req.media


class OddError(falcon.HTTPError):
    """An error of a plugin's own, with headers."""

    def __init__(self) -> None:
        """Be a teapot."""
        super().__init__(418, title="Teapot", description="I am one.", headers={"X-Pot": "short", "Set-Thing": "1"})


class UnshowableError(Exception):
    """An error whose text can't be encoded."""

    def __str__(self) -> str:
        """Return a lone surrogate."""
        return "secret \ud800"


RAISED: dict[str, Exception] = {
    "value": ValueError("internal secret"),
    "unshowable": UnshowableError(),
    "odd": OddError(),
    "surrogate": falcon.HTTPBadRequest(description="bad \ud800 text"),
    "redirect": falcon.HTTPFound("/elsewhere"),
    "status": falcon.HTTPStatus(202, text="later"),
    "unavailable": Unavailable("out of reach"),
    "busy": Busy("too busy"),
    "duplicate": Duplicate("there already"),
    "store": StoreError("internal secret"),
}


class Raises:
    """Prepares a response, then raises."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, what: str) -> None:
        """Raise."""
        resp.media = {"internal": "secret"}
        resp.content_length = 3
        raise RAISED[what]


class Yields:
    """Answers in ways that fail after the responder has returned."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, what: str) -> None:
        """Answer."""
        match what:
            case "nothing":
                pass
            case "unserialisable":
                resp.media = {"secret": object()}
            case "no-content":
                resp.status = falcon.HTTP_204
            case "cookie":
                resp.set_cookie("a", "1", secure=False)
                resp.set_cookie("b", "2")
                resp.media = []
            case "stream":
                resp.content_type = "text/plain"
                resp.stream = io.BytesIO(b"streamed")
            case "cut":
                resp.content_type = "text/plain"
                resp.stream = self._cut()

    @staticmethod
    def _cut() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise ValueError("internal secret")


def route(path: str, resource: object) -> Route:
    """Return a route with an operation for each method of the resource."""
    methods = [name.removeprefix("on_").upper() for name in dir(resource) if name.startswith("on_")]
    return Route(path, resource, {method: Operation(summary=f"{method} it") for method in methods})


class Table:
    """Mounts the resources: `/table` with minor versions and problem details, `/text` with neither."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount them."""
        routes = (
            route("/items/{name}", Item()),
            route("/raises/{what}", Raises()),
            route("/yields/{what}", Yields()),
        )
        return [
            RouteGroup(prefix="/table", routes=routes, versions=("1.0", "1.2"), body_limit=LIMIT),
            RouteGroup(prefix="/text", routes=routes, errors=PLAIN_TEXT),
        ]
