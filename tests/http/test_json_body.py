"""Request bodies: media types, encodings and limits, and Falcon's own media through the same code."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Annotated

import falcon
import pytest
from falcon import testing
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from plughost.http import Invalid, Request
from plughost.http._json.codec import DEFAULT_BODY_LIMIT, JSONHandler, MalformedJSON, read_body, read_json
from plughost.http._json.fields import Number


class Price(BaseModel):
    """A body with one member."""

    price: Annotated[Decimal, Number(minimum=0)]


def request(body: bytes = b'{"price":19.99}', **headers: str) -> Request:
    """Return a request with a body and headers, whose keywords have underscores for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request(testing.create_environ(method="POST", headers=named, body=body))


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;Charset="UTF-8"',
        "application/json; profile=x",
        "application/hal+json",
        "application/merge-patch+json;charset=utf8",
    ],
)
def test_json_media_types_are_read(content_type: str) -> None:
    """JSON is read under each of its media types, whatever the case and the parameters."""
    assert read_body(request(content_type=content_type), Price) == Price(price=Decimal("19.99"))


def test_no_content_type_is_json() -> None:
    """A request that doesn't name its media type sends JSON."""
    assert read_json(request()) == {"price": Decimal("19.99")}


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/json",
        "application/xml",
        "application/jsonp",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin-1",
        "application/json, text/plain",
        "*/*",
        "json",
        ";",
    ],
)
def test_other_media_types_are_unsupported(content_type: str) -> None:
    """A body of another media type or character set is refused with 415 before it is parsed."""
    with pytest.raises(falcon.HTTPUnsupportedMediaType) as caught:
        read_json(request(b"not json", content_type=content_type))
    assert caught.value.description


def test_compressed_bodies_are_unsupported() -> None:
    """A Content-Encoding is refused with 415, and the answer names the only accepted encoding."""
    with pytest.raises(falcon.HTTPUnsupportedMediaType) as caught:
        read_json(request(content_encoding="gzip"))
    assert caught.value.headers == {"Accept-Encoding": "identity"}
    assert read_json(request(content_encoding="Identity")) == {"price": Decimal("19.99")}


def test_a_body_over_the_default_limit_is_too_large() -> None:
    """Without a mounted route, the default limit applies, exact to the byte."""
    assert read_json(request(b" " * (DEFAULT_BODY_LIMIT - 1) + b"1")) == 1
    with pytest.raises(falcon.HTTPContentTooLarge):
        read_json(request(b" " * DEFAULT_BODY_LIMIT + b"1"))


def test_a_missing_body_is_400() -> None:
    """The error says that the body is empty."""
    with pytest.raises(MalformedJSON) as caught:
        read_body(request(b""), Price)
    assert "missing" in (caught.value.description or "")


def test_a_body_that_breaks_rules_is_invalid() -> None:
    """The answer has the model's violations."""
    with pytest.raises(Invalid) as caught:
        read_body(request(b'{"price":-1}'), Price)
    assert caught.value.violations[0].message == "must be greater than or equal to 0"


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30), st.binary(max_size=20))
def test_any_request_is_read_or_refused(content_type: str, body: bytes) -> None:
    """Whatever Content-Type and body a request has, only Falcon's errors are raised."""
    environ = testing.create_environ(method="POST", body=body)
    environ["CONTENT_TYPE"] = content_type
    with contextlib.suppress(falcon.HTTPBadRequest, falcon.HTTPUnsupportedMediaType, Invalid):
        assert read_body(Request(environ), Price).price >= 0


class Echo:
    """A resource that answers with the body."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the body."""
        resp.media = req.media


@pytest.fixture
def client() -> testing.TestClient:
    """A Falcon app with the JSON handler."""
    app = falcon.App()
    handler = JSONHandler()
    app.req_options.media_handlers["application/json"] = handler
    app.resp_options.media_handlers["application/json"] = handler
    app.add_route("/", Echo())
    return testing.TestClient(app)


def test_falcons_media_is_exact(client: testing.TestClient) -> None:
    """`req.media` and `resp.media` keep every digit."""
    answer = client.simulate_post("/", body='{"price":0.12345678901234567890123, "big":1e2}')
    assert answer.content == b'{"price":0.12345678901234567890123,"big":100}'
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "length", "status"), [("{", None, 400), ("", None, 400), ("", str(10**9), 413), ("1e999999999", None, 400)]
)
def test_falcons_media_refuses_bad_bodies(
    client: testing.TestClient, body: str, length: str | None, status: int
) -> None:
    """`req.media` raises Falcon's errors for bad bodies; a body that the engine withheld is too large."""
    headers = {"Content-Length": length} if length else None
    assert client.simulate_post("/", body=body, headers=headers).status_code == status
