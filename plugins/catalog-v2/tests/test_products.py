"""Catalog v2 over real HTTP, on each listener (SPEC Product catalog v2, CONTRACT 4)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plughost.testing import running_host
from plughost_catalog_core import sku_path

if TYPE_CHECKING:
    import httpx

PATH = "/api/v2/products"
TEXT = "text/plain; charset=utf-8"


def product(sku: str, **changes: Any) -> dict[str, Any]:
    """Return a body that keeps the rules."""
    return {"sku": sku, "name": "Tea", "price": 19.99, "stock": 3, **changes}


def test_an_empty_catalog_lists_nothing() -> None:
    """The list of no products is an empty array, never an error."""
    with running_host(plugins=["catalog-v2"]) as host, host.client() as client:
        answer = client.get(PATH)
        assert (answer.status_code, answer.text) == (200, "[]")
        assert answer.headers["Content-Type"] == "application/json"


def test_a_created_product_is_answered_located_and_kept(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """A create is 201 with the product and where it is; a get there shows the same."""
    sku = new_sku()
    created = client.post(PATH, json=product(sku))
    assert created.status_code == 201
    assert created.text == f'{{"sku":"{sku}","name":"Tea","price":19.99,"stock":3,"inStock":true}}'
    assert created.headers["Location"] == f"{PATH}/{sku}"
    read = client.get(created.headers["Location"])
    assert (read.status_code, read.text) == (200, created.text)


def test_what_one_listener_creates_every_listener_serves(
    clients: dict[str, httpx.Client], new_sku: Callable[[], str]
) -> None:
    """All listeners of the site share one state."""
    for creator in clients.values():
        path = creator.post(PATH, json=product(new_sku())).headers["Location"]
        assert [reader.get(path).status_code for reader in clients.values()] == [200, 200, 200]


def test_a_taken_sku_is_a_conflict_that_changes_nothing(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """A second create is 409 with a text, and the first product stays."""
    sku = new_sku()
    first = client.post(PATH, json=product(sku))
    second = client.post(PATH, json=product(sku, name="Other"))
    assert (second.status_code, second.text) == (409, f"Product SKU already exists: {sku}")
    assert second.headers["Content-Type"] == TEXT
    assert client.get(f"{PATH}/{sku}").text == first.text


def test_an_unknown_sku_is_not_found(client: httpx.Client) -> None:
    """Get and delete of a SKU that nobody has are 404 with a text that names it."""
    for method in ("GET", "DELETE"):
        answer = client.request(method, f"{PATH}/no%2Fne%20%C3%A9")
        assert (answer.status_code, answer.text) == (404, "Product not found: no/ne é")
        assert answer.headers["Content-Type"] == TEXT


def test_a_sku_that_no_product_can_have_is_not_found(client: httpx.Client) -> None:
    """What breaks the rules of a SKU names nothing: it is 404 as any unknown one."""
    for sku in (" ", "\u3000", "x" * 256):
        for method in ("GET", "DELETE"):
            answer = client.request(method, f"{PATH}/{sku_path(sku)}")
            assert (answer.status_code, answer.text) == (404, f"Product not found: {sku}")


def test_a_deleted_product_is_gone_and_can_be_created_again(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """A delete is 204 without a body, once; the SKU is free afterwards, and comes last in the list."""
    sku, other = new_sku(), new_sku()
    client.post(PATH, json=product(sku))
    client.post(PATH, json=product(other))
    deleted = client.delete(f"{PATH}/{sku}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert client.delete(f"{PATH}/{sku}").status_code == 404
    assert client.get(f"{PATH}/{sku}").status_code == 404
    assert client.post(PATH, json=product(sku)).status_code == 201
    assert [each["sku"] for each in client.get(PATH).json()][-2:] == [other, sku]


def test_in_stock_is_derived(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """A product without stock isn't in stock, whatever the client says."""
    assert client.post(PATH, json=product(new_sku(), stock=0, inStock=True)).json()["inStock"] is False


def test_prices_are_exact(client: httpx.Client, new_sku: Callable[[], str]) -> None:
    """The digits of a price come back as they were sent, even those that no binary float can hold."""
    for raw, shown in (("19.99", "19.99"), ("99999999999.9999", "99999999999.9999"), ("1e2", "100"), ("0.1", "0.1")):
        body = f'{{"sku": "{new_sku()}", "name": "n", "price": {raw}, "stock": 9223372036854775807}}'
        created = client.post(PATH, content=body)
        assert f'"price":{shown},"stock":9223372036854775807,' in created.text
        assert client.get(created.headers["Location"]).text == created.text


def test_broken_rules_come_all_at_once_as_text(client: httpx.Client) -> None:
    """A body that breaks rules is 400 with one line for each invalid field."""
    answer = client.post(PATH, json={"sku": " ", "price": "19.99", "stock": -1})
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == TEXT
    assert answer.text.splitlines() == [
        "sku: must not be blank",
        "name: must not be blank",
        "price: must be a number",
        "stock: must be greater than or equal to 0",
    ]


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
    """Past the bound a create is 507 with a text; a delete makes room."""
    limits = {"plugins": {"catalog-v2": {"max_products": 2}}}
    with running_host(plugins=["catalog-v2"], settings=limits) as host, host.client() as client:
        assert [client.post(PATH, json=product(sku)).status_code for sku in "ABC"] == [201, 201, 507]
        full = client.post(PATH, json=product("C"))
        assert (full.text, full.headers["Content-Type"]) == ("The catalog is full: it keeps at most 2 products", TEXT)
        client.delete(f"{PATH}/A")
        assert client.post(PATH, json=product("C")).status_code == 201


def test_a_long_list_is_whole() -> None:
    """A list that goes out in parts is one array, on each listener."""
    with running_host(plugins=["catalog-v2"]) as host:
        with host.client() as client:
            for number in range(1500):
                client.post(PATH, json=product(f"SKU-{number}"))
        for options in ({}, {"scheme": "https"}, {"scheme": "https", "http2": True}):
            with host.client(**options) as client:
                assert [each["sku"] for each in client.get(PATH).json()] == [f"SKU-{n}" for n in range(1500)]


SKUS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=255).filter(
    lambda sku: not sku.isspace()
)
AWKWARD = (
    "/",
    "a/",
    "/a",
    "a//b/",
    ".",
    "..",
    "a/../b",
    "?",
    "a?b=c",
    "%",
    "%2F",
    "%25",
    "a b",
    "+",
    "#",
    ";",
    "\x01\r\n",
)


@settings(
    deadline=None,
    max_examples=60 if os.environ.get("PLUGHOST_TEST_ALL") else 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sku=SKUS | st.sampled_from(AWKWARD))
def test_every_sku_that_can_be_created_can_be_read_and_deleted(client: httpx.Client, sku: str) -> None:
    """Percent-encoded in the path, any SKU names its product and no other."""
    created = client.post(PATH, json=product(sku))
    assert (created.status_code, created.json()["sku"]) == (201, sku)
    assert created.headers["Location"] == f"{PATH}/{sku_path(sku)}"
    read = client.get(created.headers["Location"])
    assert (read.status_code, read.text) == (200, created.text)
    deleted = client.delete(created.headers["Location"])
    assert (deleted.status_code, deleted.content) == (204, b"")


def test_every_awkward_sku_makes_the_round_trip(client: httpx.Client) -> None:
    """Slashes, dots, question marks, percent signs and control characters are data."""
    for sku in AWKWARD:
        location = client.post(PATH, json=product(sku)).headers["Location"]
        assert client.get(location).json()["sku"] == sku
        assert client.delete(location).status_code == 204
