"""What becomes of stores that are migrated, tried or replaced beside those that serve."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.conftest import PRODUCTS, Declare, product_entities
from tests.stores.operations import add, count, skus

from plughost._api.events import Event, Events
from plughost.stores import (
    Busy,
    OpenStore,
    Stores,
    StoresConfig,
    migrate_stores,
    open_stores,
    prepare_stores,
    try_stores,
)
from plughost.stores._errors import Damaged
from plughost.stores._manager import database_for

if TYPE_CHECKING:
    from plughost._api.declarations import Store

NOTE = "ALTER TABLE products ADD note VARCHAR(9);"


@pytest.fixture
def breaking(declare: Declare) -> Callable[[str], dict[str, tuple[Store]]]:
    """Return what declares the products with another step, which older code can't live with."""

    def declaring(step: str) -> dict[str, tuple[Store]]:
        declared = declare(PRODUCTS, step, entities=product_entities, tables=("products",))
        return {"catalog-plugin": (replace(declared, breaking=(2,)),)}

    return declaring


def test_a_migration_that_older_code_cannot_live_with_ends_the_generation_before(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, breaking: Callable[..., Any]
) -> None:
    """What serves already is no other host, for which it had to wait."""
    old = opening(config, products)
    new = open_stores(breaking(NOTE), config, old)
    assert (old["catalog"].state, new["catalog"].state) == ("closed", "open")
    new.close()


def test_older_code_goes_on_after_a_breaking_migration_that_failed(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, breaking: Callable[..., Any]
) -> None:
    """It is let in again at once, whoever keeps the failure, and nobody else is kept out of the store."""
    old = opening(config, products)
    new = migrate_stores(prepare_stores(breaking("CREATE nonsense;"), config, old), old)
    assert list(new.failures) == ["catalog-plugin"]
    old["catalog"].run(add, "a")
    old.close()
    with database_for("catalog", config.of("catalog")).exclusive_claim():
        pass


def test_a_breaking_migration_fails_where_another_host_serves_and_this_one_does(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, breaking: Callable[..., Any]
) -> None:
    """What goes on well is not given up for it; a host that starts waits for the other one to stop."""
    opening(config, products)
    old = opening(config, products)
    new = migrate_stores(prepare_stores(breaking(NOTE), config, old), old)
    assert "another host still serves the store" in str(new.failures["catalog-plugin"])
    old["catalog"].run(add, "a")
    old.close()
    assert migrate_stores(prepare_stores(breaking(NOTE), config, old), old).failures == {}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://me:secret@127.0.0.1/notes", "use a postgresql:// URL"),
        ("postgresql://me:[secret@127.0.0.1/notes", "write [ and ] as %5B and %5D"),
        ("postgresql://me:[secret]@127.0.0.1/notes", "write [ and ] as %5B and %5D"),
    ],
)
def test_a_url_that_cannot_be_used_fails_the_plugin_whose_store_it_is_for(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, url: str, expected: str
) -> None:
    """It is told what to write, without the password, and the others are opened."""
    config = replace(sqlite_config, urls={"notes": url})
    stores = opening(config, replace(products, name="notes", tables=()), products)
    assert (list(stores), list(stores.failures)) == (["catalog"], ["notes-plugin"])
    reason = str(stores.failures["notes-plugin"])
    assert expected in reason
    assert "secret" not in reason


@pytest.mark.parametrize("entities", [product_entities, None])
def test_a_store_that_can_be_opened_is_tried_without_a_word(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, entities: Any
) -> None:
    """With entities or without, before it was ever opened and afterwards; it is left as it is."""
    declared = {"catalog-plugin": (replace(products, entities=entities),)}
    for _ in range(2):
        tried = try_stores(prepare_stores(declared, config))
        assert (list(tried), tried.failures, tried.doubts) == (["catalog"], {}, ())
        assert opening(config, products)["catalog"].read(count) == 0


def test_entities_that_do_not_fit_the_tables_are_found_when_they_are_tried(
    config: StoresConfig, declare: Declare
) -> None:
    """A column that a migration forgot is told before anything is replaced."""
    store = declare(PRODUCTS.replace("stock BIGINT NOT NULL", "stok BIGINT"), entities=product_entities)
    assert "stock" in str(try_stores(prepare_stores({"plugin": (store,)}, config)).failures["plugin"])


def test_a_migration_that_others_hold_up_is_left_in_doubt(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Any, products: Store, breaking: Callable[..., Any]
) -> None:
    """Who tries it waits for as long as for an operation, and is told that it could not be tried."""
    config = StoresConfig(folder=tmp_path, url=postgresql, patience=0.1)
    opening(config, products)
    with database_for("catalog", config.of("catalog")).administer() as other:
        other.begin_transaction()
        other.rows("LOCK TABLE products")
        tried = try_stores(prepare_stores(breaking(NOTE), config))
    assert tried.failures == {}
    (doubt,) = tried.doubts
    assert doubt.startswith("the store catalog could not be tried: ")


def test_a_store_is_open_only_while_it_can_be_used(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """Neither before it was opened, nor once its table is gone, nor after the end."""
    before = prepare_stores({"plugin": (plain_products,)}, config)["catalog"]
    store = opening(config, plain_products)["catalog"]
    states = [before.state, store.state]
    with store.database.administer() as db:
        db.script("DROP TABLE products")
    with pytest.raises(Damaged):
        store.read(lambda session: session.rows("SELECT sku FROM products"))
    states.append(store.state)
    store.close()
    assert [*states, store.state] == ["unavailable", "open", "unavailable", "closed"]


def test_whoever_watches_is_told_which_operations_write(store: OpenStore[Any]) -> None:
    """One event each, with what came of it."""
    store.events = Events()
    seen: list[Event] = []
    store.events.subscribe(seen.append, "store")
    store.read(skus)
    store.run(add, "a")
    store.single(add, "b")
    with pytest.raises(ZeroDivisionError):
        store.run(lambda _: 1 / 0)
    store.ping()
    told = [(each.fields["kind"], each.fields["outcome"]) for each in seen]
    assert told == [("read", "ok"), ("write", "ok"), ("write", "ok"), ("write", "undone"), ("read", "ok")]


def test_what_the_driver_said_is_the_cause_of_a_store_error(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store
) -> None:
    """A log tells both; an error that is the store's own has no cause."""
    store = opening(sqlite_config, plain_products)["catalog"]
    for error, cause in (
        (sqlite3.OperationalError("no such column: x"), sqlite3.OperationalError),
        (Busy("x"), type(None)),
    ):

        def fail(_: Any, error: Exception = error) -> None:
            raise error

        with pytest.raises(Exception, match="x") as caught:
            store.read(fail)
        assert type(caught.value.__cause__) is cause
