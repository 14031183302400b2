"""The hypermedia format HAL (CONTRACT 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import requests
from restnavigator import Navigator
from restnavigator.exc import HALNavigatorError

if TYPE_CHECKING:
    import httpx

    from plughost.testing import RunningHost

Create = Callable[..., dict[str, Any]]
HAL = {"Accept": "application/hal+json"}
ITEM_LINKS = {"self", "update", "remove", "add", "list", "count"}


def test_plain_json_is_the_default(client: httpx.Client, create: Create) -> None:
    """`*/*`, application/json and no Accept give JSON without links."""
    path = f"/products/{create('A')['id']}"
    for accept in ("*/*", "application/json", "application/json;charset=utf-8, application/hal+json;q=0.5"):
        answer = client.get(path, headers={"Accept": accept})
        assert answer.headers["Content-Type"] == "application/json"
        assert "_links" not in answer.json()


def test_hal_clients_may_accept_plain_json_as_well(client: httpx.Client, create: Create) -> None:
    """A client that names HAL first, or HAL and a wildcard, gets HAL."""
    path = f"/products/{create('A')['id']}"
    for accept in ("application/hal+json, application/json, */*;q=0.01", "*/*, application/hal+json"):
        answer = client.get(path, headers={"Accept": accept})
        assert answer.headers["Content-Type"] == "application/hal+json"


def test_an_item_has_its_links(client: httpx.Client, create: Create) -> None:
    """An item in HAL is the record and its absolute links."""
    product = create("A", price=19.99)
    answer = client.get(f"/products/{product['id']}", headers=HAL)
    assert answer.headers["Content-Type"] == "application/hal+json"
    links = answer.json().pop("_links")
    assert {key: value for key, value in answer.json().items() if key != "_links"} == product
    base = str(client.base_url)
    own = {"href": f"{base}/products/{product['id']}"}
    everything = {"href": f"{base}/products"}
    assert links == {
        "self": own,
        "update": own,
        "remove": own,
        "add": everything,
        "list": everything,
        "count": {"href": f"{base}/products/count"},
    }


def test_a_list_embeds_its_items(client: httpx.Client, create: Create) -> None:
    """A page in HAL embeds its items, each with links, and links the pages around it."""
    for sku in "ABC":
        create(sku)
    document = client.get("/products?page=1&size=1", headers=HAL).json()
    assert set(document) == {"_embedded", "_links"}
    [item] = document["_embedded"]["product"]
    assert (item["sku"], set(item["_links"])) == ("B", ITEM_LINKS)
    assert set(document["_links"]) == {"self", "add", "list", "count", "first", "last", "next", "previous", "prev"}
    assert "next" not in client.get("/products?page=2&size=1", headers=HAL).json()["_links"]
    assert "previous" not in client.get("/products?page=0&size=1", headers=HAL).json()["_links"]


def test_a_list_links_to_itself(client: httpx.Client, create: Create) -> None:
    """The link `self` of a page keeps its size, order and filters."""
    for sku in "ABCD":
        create(sku, name="x" if sku in "AD" else "y")
    document = client.get("/products?page=1&size=1&sort=-sku&name=x", headers=HAL).json()
    own = document["_links"]["self"]["href"]
    assert own.startswith(str(client.base_url))
    assert [item["sku"] for item in document["_embedded"]["product"]] == ["A"]
    assert client.get(own, headers=HAL).json() == document


def test_created_products_are_available_in_hal(client: httpx.Client) -> None:
    """POST and a creating PUT answer in HAL on request."""
    body = {"sku": "A", "name": "n", "price": 1, "stock": 1}
    for answer in (
        client.post("/products", json=body, headers=HAL),
        client.put("/products/7000000000", json={**body, "sku": "B"}, headers=HAL),
    ):
        assert (answer.status_code, answer.headers["Content-Type"]) == (201, "application/hal+json")
        assert set(answer.json()["_links"]) == ITEM_LINKS


def test_a_hal_etag_is_valid_for_a_change(client: httpx.Client, create: Create) -> None:
    """The ETags of the two formats differ, and either one satisfies a conditional change."""
    path = f"/products/{create('A')['id']}"
    tag = client.get(path, headers=HAL).headers["ETag"]
    assert tag != client.get(path).headers["ETag"]
    assert client.get(path, headers={**HAL, "If-None-Match": tag}).status_code == 304
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200
    assert client.delete(path, headers={"If-Match": tag}).status_code == 204


def test_other_formats_are_refused(client: httpx.Client) -> None:
    """An Accept that excludes JSON and HAL is 406, and nothing is created."""
    body = {"sku": "A", "name": "n", "price": 1, "stock": 1}
    assert client.post("/products", json=body, headers={"Accept": "text/html"}).status_code == 406
    assert client.get("/products", headers={"Accept": "text/html"}).status_code == 406
    assert client.get("/products/count").json() == 0


def test_a_hal_client_needs_only_links(host: RunningHost, create: Create) -> None:
    """A third-party client with one address follows first, next and last, and creates, updates and removes."""
    for sku in "ABCDE":
        create(sku)
    page = _navigator(f"{host.url()}/products?size=2&sort=sku")
    page.fetch()
    page = page["first"]
    page.fetch()
    met = [item.state["sku"] for item in page.embedded()["product"]]
    while "next" in page.links():
        page = page["next"]
        page.fetch()
        met += [item.state["sku"] for item in page.embedded()["product"]]
    assert met == list("ABCDE")
    assert page.links()["last"].uri == page.uri
    made = page["add"].create({"sku": "F", "name": "n", "price": 1.25, "stock": 1})
    made.fetch()
    made["update"].upsert({"sku": "F", "name": "changed", "price": 1.25, "stock": 2})
    assert made["self"].fetch() == {**made.state, "sku": "F", "name": "changed", "price": 1.25, "stock": 2}
    made["remove"].delete()
    with pytest.raises(HALNavigatorError):
        made["self"].fetch()


def _navigator(url: str) -> Any:
    session = requests.Session()
    session.hooks["response"].append(_typed)
    return Navigator.hal(url, headers=HAL, session=session)


def _typed(answer: requests.Response, *_: object, **__: object) -> None:
    """Give a 204 the Content-Type that the client expects, although there is no content."""
    answer.headers.setdefault("Content-Type", "text/plain")
