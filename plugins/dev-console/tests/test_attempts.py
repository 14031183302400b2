"""Trying operations: the form, the answer, and repeated requests."""

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
