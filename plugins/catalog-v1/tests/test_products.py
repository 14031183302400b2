"""Catalog v1 over real HTTP, on each listener (SPEC Product catalog v1, CONTRACT 2 and 4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

from plughost.testing import running_host

if TYPE_CHECKING:
    import httpx

PATH = "/api/v1/products"
TEXT = "text/plain; charset=utf-8"


def product(sku: str, **changes: Any) -> dict[str, Any]:
    """Return a body that keeps the rules."""
    return {"sku": sku, "name": "Tea", "price": 19.99, "stock": 3, **changes}


def test_products_are_listed_in_order_of_creation() -> None:
    """The list is empty at first, and grows at its end."""
    with running_host(plugins=["catalog-v1"]) as host, host.client() as client:
        assert client.get(PATH).text == "[]"
        for sku in "CAB":
            client.post(PATH, json=product(sku))
        assert [each["sku"] for each in client.get(PATH).json()] == ["C", "A", "B"]


def test_a_created_product_is_answered_and_listed(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """A create is 201 with the product; it names no Location, since v1 has no get by SKU."""
    sku = new_sku()
    created = client.post(PATH, json=product(sku))
    assert created.status_code == 201
    assert created.text == f'{{"sku":"{sku}","name":"Tea","price":19.99,"stock":3,"inStock":true}}'
    assert "Location" not in created.headers
    assert created.json() in client.get(PATH).json()


def test_a_taken_sku_is_a_conflict(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """A second create of a SKU is 409 with a text."""
    sku = new_sku()
    client.post(PATH, json=product(sku))
    second = client.post(PATH, json=product(sku, name="Other"))
    assert (second.status_code, second.text) == (409, f"Product SKU already exists: {sku}")
    assert second.headers["Content-Type"] == TEXT


def test_broken_rules_come_all_at_once_as_text(client: httpx.Client) -> None:
    """A body that breaks rules is 400 with one line for each invalid field."""
    answer = client.post(PATH, json={"sku": 5, "name": "", "price": -1})
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, TEXT)
    assert answer.text.splitlines() == [
        "sku: must be a string",
        "name: must not be blank",
        "price: must be greater than or equal to 0",
        "stock: must not be null",
    ]


@pytest.mark.parametrize("body", [b"", b"{", b'{"sku": "\xff"}', b'{"price": NaN}', b"[" * 100_000, b"[]"])
def test_a_bad_body_is_400_in_text(client: httpx.Client, body: bytes) -> None:
    """Whatever is wrong with a body, the answer is 400 with a text that says so."""
    answer = client.post(PATH, content=body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, TEXT)
    assert answer.text.strip()


def test_what_v1_does_not_have(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """There is no resource for one product, and the list can't be deleted."""
    sku = new_sku()
    client.post(PATH, json=product(sku))
    assert client.get(f"{PATH}/{sku}").status_code == 404
    assert client.delete(f"{PATH}/{sku}").status_code == 404
    refused = client.delete(PATH)
    assert (refused.status_code, refused.headers["Content-Type"]) == (405, TEXT)
    assert {"GET", "POST"} <= set(refused.headers["Allow"].split(", "))


def test_a_body_of_another_type_is_415_and_another_accept_406(client: httpx.Client) -> None:
    """v1 speaks JSON only."""
    assert client.post(PATH, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert client.get(PATH, headers={"Accept": "text/html"}).status_code == 406


def test_the_minor_version_is_1_0(client: httpx.Client) -> None:
    """Each answer tells the version that served it."""
    assert client.get(PATH, headers={"API-Version": "1"}).headers["API-Version"] == "1.0"
    assert client.get(PATH, headers={"API-Version": "2.0"}).status_code == 400


def test_of_racing_creates_one_wins(clients: dict[str, httpx.Client], new_sku: Callable[[], str]) -> None:
    """Of 200 creates of one SKU at once over all listeners, one is 201 and the others are 409."""
    sku = new_sku()
    together = threading.Barrier(200)

    def create(client: httpx.Client) -> int:
        together.wait()
        return client.post(PATH, json=product(sku)).status_code

    with ThreadPoolExecutor(200) as pool:
        statuses = list(pool.map(create, islice(cycle(clients.values()), 200)))
    assert sorted(statuses) == [201] + [409] * 199


def test_a_full_catalog_says_so() -> None:
    """Past the bound a create is 507 with a text; a taken SKU is 409 even then."""
    limits = {"plugins": {"catalog-v1": {"max_products": 1}}}
    with running_host(plugins=["catalog-v1"], settings=limits) as host, host.client() as client:
        assert [client.post(PATH, json=product(sku)).status_code for sku in "ABA"] == [201, 507, 409]
        full = client.post(PATH, json=product("B"))
        assert (full.text, full.headers["Content-Type"]) == ("The catalog is full: it keeps at most 1 products", TEXT)
