"""What holds for every endpoint (CONTRACT 2), on catalog v4 over each listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import httpx

PATH = "/api/v4/products"
TEXT = "text/plain; charset=utf-8"
GOOD = b'{"sku": "%s", "name": "n", "price": 1, "stock": 1}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b"{'sku': 1}",
        b'{"sku": "\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"sku": "\\ud800"}',
        b'{"price": NaN}',
        b'{"price": Infinity}',
        b'{"price": 1e999999999}',
        b'{"price": 1e99999999999999999999}',
        b'{"stock": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b'{"sku": "a\\u0000b", "name": "n", "price": 1, "stock": 1}',
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
def test_a_bad_body_is_400_in_text(client: httpx.Client, body: bytes) -> None:
    """Whatever is wrong with a body, the answer is 400 with a text that says so."""
    answer = client.post(PATH, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, TEXT)
    assert answer.text.strip()


def test_a_body_without_a_content_type_is_json(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """Who names no Content-Type sends JSON."""
    assert client.post(PATH, content=GOOD % new_sku().encode()).status_code == 201


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "application/x-www-form-urlencoded"])
def test_a_body_of_another_type_is_415(client: httpx.Client, content_type: str) -> None:
    """What isn't JSON isn't read."""
    answer = client.post(PATH, content=GOOD % b"x", headers={"Content-Type": content_type})
    assert (answer.status_code, answer.headers["Content-Type"]) == (415, TEXT)


@pytest.mark.parametrize("path", [PATH, f"{PATH}/x"])
def test_an_accept_that_excludes_json_is_406(client: httpx.Client, path: str) -> None:
    """Products are made as JSON only."""
    answer = client.get(path, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (406, TEXT)


def test_a_body_over_the_limit_is_413_and_others_are_served(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """A body of over 1 MiB is refused; the next request is answered."""
    answer = client.post(PATH, content=b'{"sku": "' + b"x" * 1024 * 1024 + b'"}')
    assert (answer.status_code, answer.headers["Content-Type"]) == (413, TEXT)
    assert client.post(PATH, content=GOOD % new_sku().encode()).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", PATH, {"GET", "POST"}), ("DELETE", PATH, {"GET", "POST"}), ("POST", f"{PATH}/x", {"GET", "DELETE"})],
)
def test_another_method_is_405_and_allow_names_those_that_work(
    client: httpx.Client, method: str, path: str, allowed: set[str]
) -> None:
    """A known path tells which methods it has."""
    answer = client.request(method, path, content=b"{}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (405, TEXT)
    assert allowed <= set(answer.headers["Allow"].split(", "))


def test_head_is_get_without_a_body(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """HEAD has the headers of GET."""
    location = client.post(PATH, content=GOOD % new_sku().encode()).headers["Location"]
    head, get = client.head(location), client.get(location)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Length"] == str(len(get.content))


def test_options_names_the_methods(client: httpx.Client) -> None:
    """OPTIONS on a known path tells what it allows."""
    answer = client.options(PATH)
    assert answer.status_code in {200, 204}
    assert {"GET", "POST"} <= set(answer.headers["Allow"].split(", "))


def test_one_trailing_slash_is_the_same_resource_and_an_encoded_one_is_data(
    client: httpx.Client, new_sku: Callable[[], str]
) -> None:
    """The raw path decides: `/` at the end is dropped once, `%2F` belongs to the SKU."""
    sku = new_sku()
    client.post(f"{PATH}/", content=GOOD % sku.encode())
    assert client.get(f"{PATH}/{sku}/").json()["sku"] == sku
    assert client.get(f"{PATH}/").status_code == 200
    assert client.get(f"{PATH}/{sku}%2F").text == f"Product not found: {sku}/"


def test_unknown_paths_below_the_prefix_are_404_in_text(client: httpx.Client) -> None:
    """The prefix's owner answers for all that is below it."""
    answer = client.get(f"{PATH}/a/b/c")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, TEXT)


def test_the_minor_version_is_4_0(client: httpx.Client) -> None:
    """Each answer tells the version that served it; one that isn't spoken is 400 and names the one that is."""
    for asked in ({}, {"API-Version": "4.0"}, {"API-Version": "4"}):
        answer = client.get(PATH, headers=asked)
        assert (answer.status_code, answer.headers["API-Version"]) == (200, "4.0")
        assert "API-Version" in answer.headers["Vary"]
    missing = client.get(f"{PATH}/x")
    assert (missing.status_code, missing.headers["API-Version"]) == (404, "4.0")
    refused = client.get(PATH, headers={"API-Version": "1.0"})
    assert (refused.status_code, refused.headers["Content-Type"]) == (400, TEXT)
    assert "4.0" in refused.text


def test_every_answer_carries_a_request_id_and_nosniff(client: httpx.Client) -> None:
    """A well-formed request id is kept, another is replaced."""
    for answer in (client.get(PATH), client.get(f"{PATH}/x"), client.post(PATH, content=b"{")):
        assert answer.headers["X-Request-ID"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert client.get(PATH, headers={"X-Request-ID": "a.b-1"}).headers["X-Request-ID"] == "a.b-1"
    assert client.get(PATH, headers={"X-Request-ID": "a b"}).headers["X-Request-ID"] != "a b"
