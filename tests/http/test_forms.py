"""Forms, url-encoded or multipart, become a model, and files have limits; nothing malformed is a 500."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, SecretStr
from tests.lanes import LANES, Lane

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import Boolean, Choice, File, Integer, Number, Text, Upload, read_form
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon
    import httpx

    from plughost import PluginContext

URL_ENCODED = "application/x-www-form-urlencoded"
SMALL, LARGE = 2_000, 3 * 1024 * 1024


class Entry(BaseModel):
    """A form with a field of each kind."""

    name: Annotated[str, Text(max_length=50)]
    amount: Annotated[int, Integer(minimum=1)] = 1
    price: Annotated[Decimal, Number(minimum=0)] | None = None
    gift: Annotated[bool, Boolean()] = False
    tags: list[Annotated[str, Text()]] = []
    picture: Annotated[Upload, File(max_size=SMALL, media_types=("image/png",))] | None = None
    notes: list[Upload] = []


class Colour(Enum):
    """A choice, as an enumeration."""

    RED = "red"
    BLUE = "blue"


class Choices(BaseModel):
    """A form whose inputs may be left empty."""

    day: date | None = None
    moment: datetime | None = None
    key: UUID | None = None
    size: Annotated[str, Choice("S", "M")] | None = None
    board: Literal["none", "half"] | None = None
    colour: Colour | None = None
    only: Literal["one"] | None = None
    days: list[date] = []
    note: str | None = None
    secret: SecretStr | None = None
    any: Literal["", "a"] | None = None


class Entries:
    """Answers with what it read."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Read a form."""
        entry = read_form(req, Entry)
        files = [each for each in (entry.picture, *entry.notes) if each is not None]
        resp.media = entry.model_dump(exclude={"picture", "notes"}) | {
            "files": [[each.filename, each.content_type, each.size, len(each.file.read())] for each in files]
        }

    on_post_large = on_post

    def on_post_choices(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Read a form of choices."""
        resp.media = read_form(req, Choices).model_dump(mode="json")

    def on_put(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Read an image to its end."""
        size = 0
        while part := req.stream.read(65536):
            size += len(part)
        resp.media = size

    on_patch = on_put

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        patch = Operation(summary="Put anything", consumes=("*/*",))
        post = Operation(
            summary="Post a form", request=Entry, consumes=("multipart/form-data", "application/x-www-form-urlencoded")
        )
        put = Operation(summary="Put an image", consumes=("image/*",), body_limit=LARGE)
        return [
            RouteGroup(
                prefix="/entries",
                routes=(
                    Route("", self, {"POST": post, "PUT": put, "PATCH": patch}),
                    Route("/large", self, {"POST": replace(post, body_limit=LARGE)}, suffix="large"),
                    Route("/choices", self, {"POST": replace(post, request=Choices)}, suffix="choices"),
                ),
                body_limit=20_000,
            )
        ]


@pytest.fixture(scope="module", params=LANES, ids=str)
def client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A client on each lane."""
    lane: Lane = request.param
    settings = {"sites": {"main": {"http_engine": lane.engine}}}
    with (
        running_host(distributions=[plugin_distribution("entries", Entries())], settings=settings) as host,
        host.client(scheme=lane.scheme, http2=lane.http2) as opened,
    ):
        yield opened


def violations(answer: httpx.Response) -> dict[str, str]:
    """Return an answer's violations by field."""
    assert answer.status_code == 400, answer.text
    return {each["field"]: each["message"] for each in answer.json()["violations"]}


FIELDS = {"name": "Ünï & co", "amount": "3", "price": "1.50", "gift": "on", "tags": ["a", "b"], "other": "x"}
READ = {"name": "Ünï & co", "amount": 3, "price": 1.5, "gift": True, "tags": ["a", "b"]}


def test_an_url_encoded_form_is_read(client: httpx.Client) -> None:
    """Texts are converted to their fields' types; fields that the model lacks are ignored."""
    assert client.post("/entries", data=FIELDS).json() == READ | {"files": []}


def test_a_multipart_form_is_read(client: httpx.Client) -> None:
    """Files have their name, type and content; files for which the model has no field are dropped."""
    files = [
        ("picture", ("a.png", b"x" * SMALL, "image/png")),
        ("notes", ("one.txt", b"1", "text/plain")),
        ("notes", ("../two", b"", "text/plain")),
        ("unknown", ("three", b"3", "text/plain")),
    ]
    assert client.post("/entries", data=FIELDS, files=files).json() == READ | {
        "files": [["a.png", "image/png", SMALL, SMALL], ["one.txt", "text/plain", 1, 1], ["../two", "text/plain", 0, 0]]
    }


def test_all_violations_are_reported_together(client: httpx.Client) -> None:
    """Violations of a form have the same words as those of JSON bodies."""
    fields = {"amount": "0", "price": "x", "gift": "maybe"}
    expected = {
        "name": "must not be blank",
        "amount": "must be greater than or equal to 1",
        "price": "must be a number",
        "gift": "must be a boolean",
    }
    assert violations(client.post("/entries", data=fields)) == expected
    files = {"picture": ("a.png", b"x" * (SMALL + 1), "image/png")}
    assert violations(client.post("/entries", data=fields, files=files)) == expected | {
        "picture": f"must have at most {SMALL} bytes"
    }
    files = {"picture": ("a.gif", b"x", "image/gif")}
    assert violations(client.post("/entries", data={"name": "a"}, files=files)) == {
        "picture": "must be one of image/png"
    }
    assert violations(client.post("/entries", data={"name": "a", "picture": "text"})) == {"picture": "must be a file"}


def test_parameters_and_the_case_of_a_media_type_dont_matter(client: httpx.Client) -> None:
    """A file's media type is compared as one of a body (RFC 9110, 8.3.1); the model gets it as sent."""
    files = {"picture": ("a.png", b"x", "Image/PNG; name=a")}
    answer = client.post("/entries", data={"name": "a"}, files=files)
    assert answer.json()["files"] == [["a.png", "Image/PNG; name=a", 1, 1]]


def test_too_much_text_is_413(client: httpx.Client) -> None:
    """The limit is one of all texts together, whether one is too long or several are."""
    mebibyte = "x" * (1024 * 1024)
    for fields in ({"other": f"{mebibyte}x"}, {"other": mebibyte[:600_000], "more": mebibyte[:600_000]}):
        answer = client.post("/entries/large", files={name: (None, text) for name, text in fields.items()})
        assert answer.status_code == 413


def test_an_empty_input_is_absent(client: httpx.Client) -> None:
    """An input that a user left empty counts as not sent."""
    files = {"picture": ("", b"", "application/octet-stream")}
    answer = client.post("/entries", data={"name": "a", "amount": "", "price": ""}, files=files)
    assert answer.json() == {"name": "a", "amount": 1, "price": None, "gift": False, "tags": [], "files": []}


def test_an_empty_input_of_no_text_is_absent(client: httpx.Client) -> None:
    """A date, moment, UUID or choice that a user left empty counts as not sent; an empty text or secret is sent."""
    read: dict[str, Any] = dict.fromkeys(("day", "moment", "key", "size", "board", "colour", "only"))
    read |= {"days": [], "note": "", "secret": "", "any": ""}
    assert client.post("/entries/choices", data=dict.fromkeys(read, "")).json() == read
    assert violations(client.post("/entries/choices", data={"day": " ", "size": "L"})).keys() == {"day", "size"}


def multipart(head: bytes, body: bytes = b"x", end: bytes = b"\r\n--b--\r\n") -> bytes:
    """Return a form of one part."""
    return b"--b\r\n" + head + b"\r\n\r\n" + body + end


NAME = b'Content-Disposition: form-data; name="name"'
FORM = "multipart/form-data; boundary=b"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (FORM, multipart(b'Content-Disposition: form-data; name="\xff"')),
        (FORM, multipart(NAME + b'; filename="\xff"')),
        (FORM, multipart(NAME + b"; filename*=nothing''a")),
        (FORM, multipart(NAME + b"; filename*=utf-8''%ff")),
        (FORM, multipart(NAME + b'; filename="a"\r\nContent-Type: \xff')),
        (FORM, multipart(NAME, b"\xff")),
        (FORM, multipart(NAME, end=b"")),
        (FORM, multipart(b"X: " + b"x" * 10_000)),
        (FORM, multipart(NAME + b'; pad="' + b";" * 1000)),  # Falcon would take seconds for some of them
        (FORM, b""),
        ("multipart/form-data", multipart(NAME)),
        ("multipart/form-data; boundary=" + "b" * 100, multipart(NAME)),
        (URL_ENCODED, b"name=\xff"),
        (URL_ENCODED, b"name=%ff"),
        (URL_ENCODED, b"&".join([b"name=x"] * 1001)),
    ],
)
def test_a_malformed_form_is_refused(client: httpx.Client, content_type: str, body: bytes) -> None:
    """Whatever is malformed, the answer is 400."""
    assert client.post("/entries", content=body, headers={"Content-Type": content_type}).status_code == 400


def test_another_media_type_is_refused(client: httpx.Client) -> None:
    """415 names the accepted media type; a range of types accepts any of them."""
    answer = client.post("/entries", json={"name": "a"})
    assert (answer.status_code, answer.headers["Accept"]) == (415, f"multipart/form-data, {URL_ENCODED}")
    assert client.post("/entries", content=b"x").status_code == 415
    for content_type, status in ("image/webp", 200), ("Image/PNG; a=b", 200), ("text/plain", 415), ("image", 415):
        assert client.put("/entries", content=b"x", headers={"Content-Type": content_type}).status_code == status


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/csv"}])
def test_an_operation_may_read_any_media_type(client: httpx.Client, headers: dict[str, str]) -> None:
    """`*/*` accepts any media type, and a request without one."""
    assert client.patch("/entries", content=b"x", headers=headers).json() == 1


def test_each_operation_has_its_own_limit(client: httpx.Client) -> None:
    """A body that one method accepts may be too large for another method of the path."""
    image = {"Content-Type": "image/png"}
    assert client.put("/entries", content=b"x" * LARGE, headers=image).json() == LARGE
    assert client.put("/entries", content=b"x" * (LARGE + 1), headers=image).status_code == 413
    answer = client.post("/entries", data={"name": "x" * 20_000})
    assert (answer.status_code, answer.json()["detail"]) == (
        413,
        "The request body is larger than the 20000 bytes accepted here.",
    )
