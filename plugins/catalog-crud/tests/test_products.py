"""One product: create, read, replace, delete, with preconditions (CONTRACT 5)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from plughost_catalog_crud.operations import GET

if TYPE_CHECKING:
    import httpx

    from plughost.testing import RunningHost

Create = Callable[..., dict[str, Any]]
BODY = {"sku": "B", "name": "Book", "price": 5, "stock": 0}


def test_a_created_product_can_be_read(client: httpx.Client) -> None:
    """POST answers 201 with the entity, its ETag and its Location; an id in the body is ignored."""
    answer = client.post("/products", json={**BODY, "id": 999_999})
    assert answer.status_code == 201
    assert answer.json()["id"] != 999_999
    read = client.get(answer.headers["Location"])
    assert read.json() == answer.json()
    assert read.headers["ETag"] == answer.headers["ETag"]


def test_a_taken_sku_is_refused(client: httpx.Client, create: Create) -> None:
    """Creating or replacing with another product's SKU is 409, in problem details, and changes nothing."""
    first, second = create("A"), create("B")
    for answer in (
        client.post("/products", json={**BODY, "sku": "A"}),
        client.put(f"/products/{second['id']}", json={**BODY, "sku": "A"}),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (409, "Product SKU already exists: A")
    assert client.get("/products").json() == [first, second]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_all_violations_are_reported_together(client: httpx.Client, create: Create, method: str) -> None:
    """An invalid body is 400 with a violation for each invalid field."""
    path = "/products" if method == "POST" else f"/products/{create('A')['id']}"
    answer = client.request(method, path, json={"sku": " ", "price": -1, "stock": 1.5})
    assert (answer.status_code, answer.json()["title"]) == (400, "Constraint Violation")
    assert answer.json()["violations"] == [
        {"field": "sku", "message": "must not be blank"},
        {"field": "name", "message": "must not be blank"},
        {"field": "price", "message": "must be greater than or equal to 0"},
        {"field": "stock", "message": "must be an integer"},
    ]


def test_put_replaces_a_product(client: httpx.Client, create: Create) -> None:
    """PUT of an existing product is 204 without a body; the path's id wins over one in the body."""
    product = create("A")
    answer = client.put(f"/products/{product['id']}", json={**BODY, "id": 12345})
    assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(f"/products/{product['id']}").json() == {**BODY, "id": product["id"]}


def test_a_product_may_keep_its_sku(client: httpx.Client, create: Create) -> None:
    """PUT with the product's own SKU is no conflict."""
    product = create("B")
    assert client.put(f"/products/{product['id']}", json=BODY).status_code == 204


def test_an_absent_product_is_created_under_its_id(client: httpx.Client, create: Create) -> None:
    """PUT of an absent id is 201 with that id and its Location, and later generated ids never collide with it."""
    given = create("A")["id"] + 3
    answer = client.put(f"/products/{given}", json=BODY)
    assert (answer.status_code, answer.json()["id"], answer.headers["Location"]) == (
        201,
        given,
        f"{client.base_url}/products/{given}",
    )
    later = [create(f"later-{number}")["id"] for number in range(5)]
    assert given not in later
    assert len(set(later)) == 5


def test_the_largest_id_is_2_to_the_53(client: httpx.Client) -> None:
    """A larger one is 404; afterwards ids are still generated."""
    assert client.put(f"/products/{2**53 + 1}", json=BODY).status_code == 404
    assert client.put(f"/products/{2**53}", json=BODY).status_code == 201
    assert client.post("/products", json={**BODY, "sku": "next"}).status_code == 201


def test_simultaneous_puts_of_one_absent_id_make_one_product(
    client: httpx.Client, create: Create, host: RunningHost
) -> None:
    """One of them creates it, and the others replace it."""
    given = 3_000_000_001

    def put(number: int) -> int:
        with host.client() as own:
            return own.put(f"/products/{given}", json={**BODY, "stock": number}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(put, range(16))) == [201, *[204] * 15]


@pytest.mark.parametrize(
    "identity", ["0", "-1", "abc", "1.0", "+1", "1_0", "%D9%A1", str(2**63), "9" * 50, "%00", "%FF"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_invalid_id_is_not_found(client: httpx.Client, method: str, identity: str) -> None:
    """Anything except 1 to 2^63-1 in plain digits is 404, never 500."""
    answer = client.request(method, f"/products/{identity}", json=BODY if method == "PUT" else None)
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")


def test_a_deleted_product_is_gone(client: httpx.Client, create: Create) -> None:
    """DELETE is 204 once, then 404."""
    path = f"/products/{create('A')['id']}"
    assert [client.delete(path).status_code, client.delete(path).status_code, client.get(path).status_code] == [
        204,
        404,
        404,
    ]


def test_an_unchanged_product_is_304(client: httpx.Client, create: Create) -> None:
    """A GET with the current ETag has no body; after a change it is 200 with another ETag."""
    path = f"/products/{create('A')['id']}"
    tag = client.get(path).headers["ETag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        answer = client.get(path, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", tag)
    client.put(path, json=BODY)
    answer = client.get(path, headers={"If-None-Match": tag})
    assert answer.status_code == 200
    assert answer.headers["ETag"] != tag


def test_a_304_has_the_headers_of_its_description(client: httpx.Client, create: Create) -> None:
    """Both name the ETag, and the request header on which it depends."""
    described = GET.responses[304].headers
    answer = client.get(f"/products/{create('A')['id']}", headers={"If-None-Match": "*"})
    assert set(described) == {"ETag", "Vary"}
    assert answer.headers.keys() >= {name.lower() for name in described}


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_if_match_makes_a_change_conditional(client: httpx.Client, create: Create, method: str) -> None:
    """An outdated, weak or invalid ETag is 412 and changes nothing; with the current one the change succeeds."""
    product = create("A")
    path = f"/products/{product['id']}"
    tag = client.get(path).headers["ETag"]
    body = {"json": BODY} if method == "PUT" else {}
    for wrong in ('"outdated"', f"W/{tag}", "", ",", "not, quoted", '"*"'):
        assert client.request(method, path, headers={"If-Match": wrong}, **body).status_code == 412  # type: ignore[arg-type] # one keyword or none
    assert client.get(path).json() == product
    assert client.request(method, path, headers={"If-Match": f'"x", {tag}'}, **body).status_code == 204  # type: ignore[arg-type] # one keyword or none


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_if_match_makes_a_read_conditional(client: httpx.Client, create: Create, method: str) -> None:
    """Another ETag is 412, with or without If-None-Match; an absent product is 404."""
    path = f"/products/{create('A')['id']}"
    tag = client.get(path).headers["ETag"]
    for wrong in ('"outdated"', f"W/{tag}", "", '"*"'):
        assert client.request(method, path, headers={"If-Match": wrong, "If-None-Match": tag}).status_code == 412
    assert client.request(method, path, headers={"If-Match": f'"x", {tag}'}).status_code == 200
    assert client.request(method, path, headers={"If-Match": tag, "If-None-Match": tag}).status_code == 304
    assert client.request(method, "/products/4000000000", headers={"If-Match": "*"}).status_code == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("condition", ["*", '"anything"'])
def test_if_match_on_an_absent_product_fails(client: httpx.Client, method: str, condition: str) -> None:
    """If-Match with an unknown id is 412, and nothing is created."""
    body = {"json": BODY} if method == "PUT" else {}
    answer = client.request(method, "/products/4000000000", headers={"If-Match": condition}, **body)  # type: ignore[arg-type] # one keyword or none
    assert answer.status_code == 412
    assert client.get("/products/4000000000").status_code == 404


def test_if_none_match_prevents_a_replacement(client: httpx.Client, create: Create) -> None:
    """With If-None-Match: *, PUT creates and never replaces. In quotes, `*` is a tag that no product has."""
    path = f"/products/{create('A')['id']}"
    assert client.put(path, json=BODY, headers={"If-None-Match": "*"}).status_code == 412
    assert client.put("/products/5000000000", json=BODY, headers={"If-None-Match": "*"}).status_code == 201
    assert client.put("/products/5000000000", json=BODY, headers={"If-None-Match": '"*"'}).status_code == 204
    assert client.get("/products/5000000000", headers={"If-None-Match": '"*"'}).status_code == 200


def test_only_one_of_simultaneous_conditional_changes_succeeds(
    client: httpx.Client, create: Create, host: RunningHost
) -> None:
    """Of many PUTs with the same If-Match, exactly one succeeds."""
    path = f"/products/{create('B')['id']}"
    tag = client.get(path).headers["ETag"]

    def put(number: int) -> int:
        with host.client() as own:
            return own.put(path, json={**BODY, "stock": number + 1}, headers={"If-Match": tag}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(put, range(8))) == [204, *[412] * 7]


@pytest.mark.parametrize("tag", ["nonsense", '"unclosed', "", ",", '"a" "b"'])
@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
def test_a_malformed_etag_is_no_server_error(client: httpx.Client, create: Create, header: str, tag: str) -> None:
    """The answer is never 5xx, whatever a conditional header contains."""
    path = f"/products/{create('A')['id']}"
    assert client.get(path, headers={header: tag}).status_code < 500
    assert client.put(path, json=BODY, headers={header: tag}).status_code < 500


def test_accept_does_not_matter_for_a_delete(client: httpx.Client, create: Create) -> None:
    """A DELETE has no body to negotiate, so it succeeds whatever the client accepts."""
    path = f"/products/{create('A')['id']}"
    assert client.delete(path, headers={"Accept": "text/html"}).status_code == 204
