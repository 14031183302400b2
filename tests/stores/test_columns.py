"""Tables that change under a running host: a missing column, and exhausted ids."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores import operations as entities
from tests.stores.test_rows import add, skus

from plughost.stores import Session, StoreError, Unavailable, http_error
from plughost.stores._errors import Damaged
from plughost.stores._manager import Stores, check

if TYPE_CHECKING:
    from plughost import Store
    from plughost.stores._config import StoresConfig


@pytest.mark.parametrize(
    ("away", "back"),
    [
        ("ALTER TABLE products RENAME COLUMN stock TO away", "ALTER TABLE products RENAME COLUMN away TO stock"),
        ("ALTER TABLE products DROP COLUMN stock", "ALTER TABLE products ADD COLUMN stock BIGINT NOT NULL DEFAULT 1"),
    ],
    ids=["renamed", "dropped"],
)
def test_a_missing_column_is_reported(
    opening: Callable[..., Stores],
    config: StoresConfig,
    plain_products: Store,
    wait_for: Callable[..., None],
    log_lines: list[dict[str, Any]],
    *,
    away: str,
    back: str,
) -> None:
    """The store counts as damaged, not the plugin as faulty, with one log event, until the column is back."""
    store = opening(config, plain_products)["catalog"]
    store.run(add, "a")
    log_lines.clear()
    with store.database.administer() as db:
        db.script(away)
    reads = "SELECT stock FROM products"
    for operation, argument in ((store.run, "b"), (store.single, "c")):
        with pytest.raises(Damaged, match="no column stock in its table products any more"):
            operation(add, argument)
    with pytest.raises(Damaged, match="no column stock"):
        store.read(Session.rows, reads)
    assert not check(store).up
    assert [line["event"] for line in log_lines] == ["the store is not available"]
    with store.database.administer() as db:
        db.script(back)
    wait_for(lambda: check(store).up)
    assert (store.read(skus), store.read(Session.rows, reads)) == (["a"], [(1,)])
    assert [line["event"] for line in log_lines[1:]] == ["the store is back"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 can't tell SQLite that what is quoted is a name")
def test_a_missing_column_is_not_read_as_its_own_name(
    opening: Callable[..., Stores], config: StoresConfig, products: Store
) -> None:
    """SQLite takes a quoted unknown name for a text, and Pony quotes all names."""
    store = opening(config, products)["catalog"]
    store.run(entities.add, "a")
    with store.database.administer() as db:
        db.script("ALTER TABLE products RENAME COLUMN name TO away")
    with pytest.raises(Damaged, match="no column name in its table products"):
        store.read(entities.get, "a")


def test_a_column_that_never_existed_is_a_defect_of_the_operation(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """This holds even if somebody has added another column meanwhile."""
    store = opening(config, plain_products)["catalog"]
    with store.database.administer() as db:
        db.script("ALTER TABLE products ADD COLUMN more BIGINT")
    with pytest.raises(StoreError) as caught:
        store.read(Session.rows, "SELECT misspelt FROM products")
    assert (type(caught.value), http_error(caught.value).status_code) == (StoreError, 500)
    assert check(store).up


@pytest.mark.parametrize("method", ["run", "single"])
def test_exhausted_ids_are_reported(
    opening: Callable[..., Stores],
    config: StoresConfig,
    plain_products: Store,
    log_lines: list[dict[str, Any]],
    method: str,
) -> None:
    """A new row is refused as unavailable, with the cause in the log; the rest of the store is served as before."""
    store = opening(config, plain_products)["catalog"]
    store.run(add, "a")
    with store.database.administer() as db:
        db.script(
            f"UPDATE sqlite_sequence SET seq = {2**63 - 1} WHERE name = 'products'"
            if config.url is None
            else f"SELECT setval('products_id_seq', {2**63 - 1})"
        )
    log_lines.clear()
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            getattr(store, method)(add, "b")
        answer = http_error(caught.value)
        assert (answer.status_code, answer.headers) == (503, None)
        assert check(store).up
    assert store.run(Session.change, "UPDATE products SET stock = 2") == 1
    (line,) = log_lines
    assert line["event"] == "the store has no ids left"
    assert "products" in line["reason"]
