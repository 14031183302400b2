"""Trying operations: the form, the answer, and sending a request again."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import BaseModel

from plughost import Operation, Parameter, PluginContext, Principal, Route, RouteGroup, hookimpl

if TYPE_CHECKING:
    import falcon

    from .conftest import Console, Start

_PATH = "/desk/{name}"


class Sale(BaseModel):
    """A body."""

    item: str = "tea"


class Desk:
    """A plugin that answers with what it was sent, to those who have a token."""

    def __init__(self) -> None:
        self.sold: list[Any] = []

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str, many: int | None) -> None:
        """Sell something."""
        self.sold.append(req.get_media())
        resp.media = {"name": name, "many": many, "sold": self.sold[-1], "price": 1.50}

    @hookimpl
    def register_authenticator(self, context: PluginContext[Any]) -> Any:
        """Know one token."""
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


_OPERATION = {"site": "main", "method": "POST", "path": _PATH, "scheme": "http"}


def _send(console: Console, **fields: str) -> str:
    given = {**_OPERATION, "path:name": "a b/c", "query:many": "3", "body": '{"item": "tea"}', **fields}
    return html.unescape(console.post("/try", **given).text)


def test_the_form_comes_from_the_description(start: Start) -> None:
    """Each parameter has a field, the body an example, and the demo account is offered."""
    with start(desk=Desk) as console:
        page = html.unescape(console.get("/try", params=_OPERATION).text)
        assert console.get("/try", params={**_OPERATION, "path": "/other"}).status_code == 404
    for part in ('name="path:name"', 'name="query:many"', '"item": "tea"', "ann, a demo account", "<code>many</code>"):
        assert part in page
    assert 'placeholder="such as price,-stock"' in page
    assert 'href="/q/dev/routes" class="within"' in page


def test_the_answer_is_shown_with_what_sends_it_again(start: Start) -> None:
    """Status, time, body and headers are there, and the request in the words of three tools; each command works."""
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


def test_who_has_no_token_is_told_so_by_the_service(start: Start) -> None:
    """The answer is the service's own 401, and an account that nobody offered is refused."""
    with start(desk=Desk) as console:
        assert "401</span>" in _send(console)
        assert "200</span>" in _send(console, account="token", token="secret-of-ann")
        assert console.post("/try", **_OPERATION, account="login:bob").status_code == 400


def test_a_request_is_sent_again_as_it_was(start: Start) -> None:
    """Headers and body are those of before; what was not kept can't be sent."""
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
