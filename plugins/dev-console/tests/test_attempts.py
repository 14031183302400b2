"""Trying operations: the form, the answer, and repeated requests."""

from __future__ import annotations

import html
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Annotated, Any, Literal

import httpx
import pytest
from pydantic import BaseModel

from plughost import Operation, Parameter, PluginContext, Principal, Route, RouteGroup, hookimpl
from plughost.http import File, Upload, read_body, read_form

if TYPE_CHECKING:
    import falcon

    from .conftest import Console, Start

_PATH = "/desk/{name}"


class Sale(BaseModel):
    """A body."""

    item: str = "tea"


class Place(BaseModel):
    """A model inside another one, which may contain itself."""

    size: Literal["small", "large"]
    within: Place | None


class Order(BaseModel):
    """A body with other models inside."""

    place: Place
    kind: Literal["gift"]
    sold: Sale | None


class Deep:
    """A plugin that takes nested models, and answers with JSON of great depth."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Read an order."""
        read_body(req, Order)
        resp.content_type = "application/json"
        resp.text = "[" * 5000 + "]" * 5000

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/deep", routes=(Route("", self, {"POST": Operation(summary="", request=Order)}),))]


class Desk:
    """A plugin that echoes a request with a valid token."""

    def __init__(self) -> None:
        self.sold: list[Any] = []

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str, many: int | None) -> None:
        """Echo the sale."""
        self.sold.append(req.get_media())
        resp.media = {"name": name, "many": many, "sold": self.sold[-1], "price": 1.50}

    @hookimpl
    def register_authenticator(self, context: PluginContext[Any]) -> Any:
        """Accept one token."""
        return lambda req: Principal("ann") if req.auth == "Bearer secret-of-ann" else None

    @hookimpl
    def started(self, context: PluginContext[Any]) -> None:
        """Offer a demo account."""
        context.offer_login("ann", lambda: "secret-of-ann")

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        many = Parameter(name="many", place="query", description="How `many`.", schema={"type": "integer"})
        sorting = {"type": "array", "items": {"type": "string"}, "examples": [["price,-stock"]]}
        sort = Parameter(name="sort", place="query", description="", schema=sorting)
        sell = Operation(summary="Sell", request=Sale, parameters=(many, sort), security=("bearer",))
        return [RouteGroup(prefix="/desk", routes=(Route("/{name}", self, {"POST": sell}),))]


class Entry(BaseModel):
    """A form."""

    title: str
    rating: int


class Photo(Entry):
    """A form with a file."""

    picture: Annotated[Upload, File(media_types=("image/png",))]


class Album:
    """A plugin that reads forms, and a body that is none."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Echo a form without files."""
        entry = read_form(req, Entry)
        resp.media = [entry.title, entry.rating]

    def on_post_photo(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Echo a form with a file."""
        photo = read_form(req, Photo)
        resp.media = [photo.title, photo.rating, photo.picture.content_type]

    def on_patch(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Echo JSON of another media type."""
        resp.media = [req.content_type, read_body(req, Entry).title]

    on_patch_photo = on_patch

    def on_put(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Echo a body."""
        resp.media = [req.content_type, req.bounded_stream.read().decode()]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it, with each kind of form."""
        pairs = Operation(summary="Write", request=Entry, consumes=("application/x-www-form-urlencoded",))
        parts = Operation(summary="Send", request=Photo, consumes=("multipart/form-data",))
        film = Operation(summary="Upload", consumes=("video/mp4",))
        patch = Operation(summary="Correct", request=Entry, consumes=("application/merge-patch+json",))
        anything = Operation(summary="Amend", request=Entry, consumes=("*/*",))
        routes = (
            Route("", self, {"POST": pairs, "PUT": film, "PATCH": patch}),
            Route("/photos", self, {"POST": parts, "PATCH": anything}, suffix="photo"),
        )
        return [RouteGroup(prefix="/album", routes=routes)]


_OPERATION = {"site": "main", "method": "POST", "path": _PATH, "scheme": "http"}


def _send(console: Console, **fields: str) -> str:
    given = {**_OPERATION, "path:name": "a b/c", "query:many": "3", "body": '{"item": "tea"}', **fields}
    return html.unescape(console.post("/try", **given).text)


def test_the_form_is_made_from_the_description(start: Start) -> None:
    """Each parameter has a field, the body an example, and the demo account is offered."""
    with start(desk=Desk) as console:
        page = html.unescape(console.get("/try", params=_OPERATION).text)
        assert console.get("/try", params={**_OPERATION, "path": "/other"}).status_code == 404
    for part in ('name="path:name"', 'name="query:many"', '"item": "tea"', "ann, a demo account", "<code>many</code>"):
        assert part in page
    assert 'placeholder="such as price,-stock"' in page
    assert 'href="/q/dev/routes" class="within"' in page


def test_the_answer_is_shown_with_commands_to_repeat_it(start: Start) -> None:
    """It has status, time, body and headers; the commands for three tools repeat the request, and each works."""
    with start(desk=Desk) as console:
        page = _send(console, account="login:ann")
        (python,) = re.findall(r"import os\n\nimport httpx.*?answer.text\)", page, re.DOTALL)
        scope: dict[str, Any] = {}
        exec(python.replace("os.environ['TOKEN']", "'secret-of-ann'").rpartition("\n")[0], scope)
        number = re.search(r"/requests/(\d+)\"", page)
        assert number is not None
        assert "Bearer ••••••" in console.get(f"/requests/{number[1]}").text
    assert re.search(r'class="status s2">200</span> OK <span class="soft">in [\d.]+ ms', page)
    assert '"name": "a b/c",\n  "many": 3' in page
    assert "curl -g -i -X POST 'http://localhost:" in page
    assert 'http -A bearer -a "$TOKEN" --raw \'{"item": "tea"}\' POST' in page
    assert scope["answer"].json() == {"name": "a b/c", "many": 3, "sold": {"item": "tea"}, "price": 1.5}


def test_a_missing_token_is_refused_by_the_service(start: Start) -> None:
    """The answer is the service's own 401, and an unknown demo account is refused."""
    with start(desk=Desk) as console:
        assert "401</span>" in _send(console)
        assert "200</span>" in _send(console, account="token", token="secret-of-ann")
        assert console.post("/try", **_OPERATION, account="login:bob").status_code == 400


def test_a_request_is_repeated_unchanged(start: Start) -> None:
    """It has the same headers and body; a request whose data was not recorded can't be repeated."""
    with start(desk=Desk) as console:
        headers = {"Authorization": "Bearer secret-of-ann"}
        for item in ("tea", "x" * 20_000):
            httpx.post(f"{console.origin}/desk/x", json={"item": item}, headers=headers)
        small, large = (each["number"] for each in console.get("/requests/new").json())
        answer = console.post(f"/requests/{small}/replay")
        assert answer.status_code == 303
        assert "POST" in console.client.get(answer.headers["Location"]).text
        assert [each["status"] for each in console.get("/requests/new").json()] == [200, 200, 200]
        assert console.post(f"/requests/{large}/replay").status_code == 404
        assert "can't be replayed" in html.unescape(console.get(f"/requests/{large}").text)


def test_forms_and_other_bodies_are_sent_as_what_the_operation_reads(start: Start) -> None:
    """A JSON body would be 415; the examples of the page are read."""
    with start(album=Album) as console:
        answers = {}
        paths = {"/album": ("POST", "PUT", "PATCH"), "/album/photos": ("POST", "PATCH")}
        for method, path in ((method, path) for path, methods in paths.items() for method in methods):
            operation = {"site": "main", "scheme": "http", "method": method, "path": path}
            page = console.get("/try", params=operation).text
            (example,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
            shown = html.unescape(console.post("/try", **operation, body=html.unescape(example) or "frames").text)
            answers[method, path] = re.sub(r"\s+", " ", shown)
    assert '[ "text", 1 ]' in answers["POST", "/album"]
    assert '[ "video/mp4", "frames" ]' in answers["PUT", "/album"]
    assert '[ "text", 1, "image/png" ]' in answers["POST", "/album/photos"]
    assert '[ "application/merge-patch+json", "text" ]' in answers["PATCH", "/album"]
    assert '[ "application/json", "text" ]' in answers["PATCH", "/album/photos"]


def test_an_example_of_nested_models_is_valid_and_deep_json_is_shown(start: Start) -> None:
    """The service reads the example; JSON too deep to be indented is shown as it was sent."""
    operation = {"site": "main", "scheme": "http", "method": "POST", "path": "/deep"}
    with start(deep=Deep) as console:
        (example,) = re.findall(
            r"<textarea[^>]*>(.*?)</textarea>", console.get("/try", params=operation).text, re.DOTALL
        )
        answer = console.post("/try", **operation, body=html.unescape(example))
    assert answer.status_code == 200
    assert "200</span>" in answer.text
    assert "[" * 5000 in answer.text


def test_the_offered_command_sends_a_file(start: Start) -> None:
    """It names the fields of the form, and a file for each that is one."""
    if shutil.which("curl") is None:
        pytest.skip("the command is not run: install curl")
    with start(album=Album) as console:
        (command,) = re.findall(r"curl http://\S+/album/photos [^<]*", html.unescape(console.get("/routes").text))
        words = [each.replace("@FILE", f"@{__file__};type=image/png") for each in shlex.split(command)]
        done = subprocess.run([*words, "-s"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == '["text",1,"image/png"]'
