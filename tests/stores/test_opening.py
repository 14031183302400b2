"""Stores that are migrated, previewed or replaced while others serve."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from structlog.testing import CapturingLogger
from tests.stores.conftest import PRODUCTS, Declare, product_entities
from tests.stores.operations import add, count, skus

from plughost._api.events import Event, Events
from plughost.stores import Busy, OpenStore, Unavailable
from plughost.stores._config import StoresConfig
from plughost.stores._databases import database_for
from plughost.stores._errors import Damaged
from plughost.stores._manager import Stores, migrate_stores, open_stores, prepare_stores, try_stores

if TYPE_CHECKING:
    from tests.stores.proxy import Proxy

    from plughost._api.declarations import Store

NOTE = "ALTER TABLE products ADD note VARCHAR(9);"


@pytest.fixture
def breaking(declare: Declare) -> Callable[[str], dict[str, tuple[Store]]]:
    """Return a declaration of the products with a further, breaking step."""

    def declaring(step: str) -> dict[str, tuple[Store]]:
        declared = declare(PRODUCTS, step, entities=product_entities, tables=("products",))
        return {"catalog-plugin": (replace(declared, breaking=(2,)),)}

    return declaring


def test_a_breaking_migration_closes_the_generation_before(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, breaking: Callable[..., Any]
) -> None:
    """The host's own present generation doesn't count as another host, and is not waited for."""
    old = opening(config, products)
    new = open_stores(breaking(NOTE), config, old)
    assert (old["catalog"].state, new["catalog"].state) == ("closed", "open")
    new.close()


def test_the_claim_of_a_migration_ends_before_the_next_begins(
    through_proxy: StoresConfig, opening: Callable[..., Stores], products: Store, proxy: Proxy
) -> None:
    """A server that notices late that a connection was closed keeps no host from serving."""
    proxy.keep_open = True
    try:
        with database_for("catalog", through_proxy.of("catalog")).exclusive_claim():
            pass
        assert opening(through_proxy, products)["catalog"].read(count) == 0
    finally:
        proxy.drop()


def test_a_migration_ends_although_nobody_answers_that_its_claim_is_over(
    through_proxy: StoresConfig, proxy: Proxy
) -> None:
    """What the migration did is committed by then; the server ends the claim with its connection."""
    proxy.swallow = b"pg_advisory_unlock"

    def claim() -> None:
        with database_for("catalog", through_proxy.of("catalog")).exclusive_claim():
            pass

    with ThreadPoolExecutor(1) as thread:
        try:
            for _ in range(2):
                thread.submit(claim).result(25)
        finally:
            proxy.drop()


@pytest.mark.parametrize("lost_before_commit", [True, False])
def test_migrations_whose_commit_loses_its_connection_are_looked_up(
    opening: Callable[..., Stores],
    through_proxy: StoresConfig,
    *,
    products: Store,
    breaking: Callable[..., Any],
    proxy: Proxy,
    lost_before_commit: bool,
) -> None:
    """New code goes on if they were kept; if not, the older code does, and the schema is as it was."""
    old = opening(through_proxy, products)
    new = migrate_stores(prepare_stores(breaking(NOTE), through_proxy, old), old)
    assert not new.failures
    if lost_before_commit:
        proxy.drop()
        with pytest.raises(Unavailable, match="nothing of them was kept"):
            new.open(old)
        new.close(keep=old)
    else:
        proxy.cut_after = b"COMMIT"
        new.open(old)
        proxy.cut_after = None
    served = old if lost_before_commit else new
    served["catalog"].run(add, "a")
    assert (served["catalog"].read(count), served["catalog"].schema) == (1, 1 if lost_before_commit else 2)
    new.close()


def test_older_code_continues_after_a_failed_breaking_migration(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, breaking: Callable[..., Any]
) -> None:
    """It is admitted again at once, even while the failure is still referenced, and no other host is locked out."""
    old = opening(config, products)
    new = migrate_stores(prepare_stores(breaking("CREATE nonsense;"), config, old), old)
    assert list(new.failures) == ["catalog-plugin"]
    old["catalog"].run(add, "a")
    old.close()
    with database_for("catalog", config.of("catalog")).exclusive_claim():
        pass


def test_a_breaking_migration_fails_while_other_hosts_serve(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, breaking: Callable[..., Any]
) -> None:
    """A serving host keeps its working generation, of which its log tells no loss; a starting host waits."""
    opening(config, products)
    old = opening(config, products)
    log = CapturingLogger()
    logger = structlog.wrap_logger(log, processors=[])
    new = migrate_stores(prepare_stores(breaking(NOTE), config, old, logger), old)
    assert "another host still serves the store" in str(new.failures["catalog-plugin"])
    assert log.calls == []
    old["catalog"].run(add, "a")
    old.close()
    assert migrate_stores(prepare_stores(breaking(NOTE), config, old), old).failures == {}


def test_no_host_takes_advantage_of_anothers_attempt(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Any, products: Store, breaking: Callable[..., Any]
) -> None:
    """If all hosts try a breaking migration at once, each still sees that the others serve."""
    config = StoresConfig(folder=tmp_path, url=postgresql)
    serving = [opening(config, products) for _ in range(3)]
    begin = threading.Barrier(len(serving))

    def migrate(old: Stores) -> str:
        begin.wait(30)
        new = migrate_stores(prepare_stores(breaking(NOTE), config, old), old)
        new.close()
        return str(new.failures["catalog-plugin"]) if new.failures else ""

    with ThreadPoolExecutor(len(serving)) as threads:
        assert all("another host still serves the store" in each for each in threads.map(migrate, serving))
    assert [old["catalog"].read(count) for old in serving] == [0, 0, 0]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql://me:secret@127.0.0.1/notes", "use a postgresql:// URL"),
        ("postgres//me:secret@127.0.0.1/notes", "use a postgresql:// URL"),
        ("host=127.0.0.1 user=me password=secret", "use a postgresql:// URL"),
        ("postgresql:/me:secret@127.0.0.1/notes", "is malformed: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
        ("postgresql://me:[secret@127.0.0.1/notes", "write / ? @ [ and ] in a part as %2F %3F %40 %5B and %5D"),
        ("postgresql://me:[secret]@127.0.0.1/notes", "write / ? @ [ and ] in a part as %2F %3F %40 %5B and %5D"),
        ("postgresql://me:secret/1@127.0.0.1/notes", "write / ? @ [ and ] in a part as %2F %3F %40 %5B and %5D"),
        ("postgresql://me:1@secret@127.0.0.1/notes", "write / ? @ [ and ] in a part as %2F %3F %40 %5B and %5D"),
        ("postgresql://me:secret?1@127.0.0.1/notes", "and the port as a number"),
        ("postgresql://127.0.0.1:secret/notes", "and the port as a number"),
        ("postgresql://me:secret#1@127.0.0.1/notes?user", "is malformed: postgresql://me:***@127.0.0.1/notes?user"),
        ("postgresql://me:100%secret@127.0.0.1/notes", "write % in a part as %25, = in the value of"),
        ("postgresql://127.0.0.1/notes?user=me&passwd=secret", "notes?user=me&passwd=***"),
        ("postgresql://me:secret@127.0.0.1/notes?connect_timeout=2.5", "is malformed: postgresql://me:***@127.0.0.1"),
    ],
)
def test_an_unusable_url_fails_its_plugin(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, products: Store, url: str, expected: str
) -> None:
    """The reason says what to write, without the password, and other stores are opened."""
    config = replace(sqlite_config, urls={"notes": url})
    stores = opening(config, replace(products, name="notes", tables=()), products)
    assert (list(stores), list(stores.failures)) == (["catalog"], ["notes-plugin"])
    reason = str(stores.failures["notes-plugin"])
    assert expected in reason
    assert "secret" not in reason


@pytest.mark.parametrize("entities", [product_entities, None])
def test_a_sound_store_is_previewed_silently(
    opening: Callable[..., Stores], config: StoresConfig, products: Store, entities: Any
) -> None:
    """This holds with and without entities, before its first opening and afterwards; the store is unchanged."""
    declared = {"catalog-plugin": (replace(products, entities=entities),)}
    for _ in range(2):
        tried = try_stores(prepare_stores(declared, config))
        assert (list(tried), tried.failures, tried.doubts) == (["catalog"], {}, ())
        assert opening(config, products)["catalog"].read(count) == 0


def test_entities_that_do_not_match_the_tables_are_found_in_a_preview(config: StoresConfig, declare: Declare) -> None:
    """A column that the migrations lack is reported before anything is replaced."""
    store = declare(PRODUCTS.replace("stock BIGINT NOT NULL", "stok BIGINT"), entities=product_entities)
    assert "stock" in str(try_stores(prepare_stores({"plugin": (store,)}, config)).failures["plugin"])


def test_a_blocked_migration_cannot_be_previewed(
    opening: Callable[..., Stores], postgresql: str, tmp_path: Any, products: Store, breaking: Callable[..., Any]
) -> None:
    """The preview waits as long as an operation, and then says that it couldn't try the migration."""
    config = StoresConfig(folder=tmp_path, url=postgresql, patience=0.1)
    opening(config, products)
    with database_for("catalog", config.of("catalog")).administer() as other:
        other.begin_transaction()
        other.rows("LOCK TABLE products")
        tried = try_stores(prepare_stores(breaking(NOTE), config))
    assert tried.failures == {}
    (doubt,) = tried.doubts
    assert doubt.startswith("the store catalog could not be tried: ")


def test_a_store_is_open_only_while_it_is_usable(
    opening: Callable[..., Stores], config: StoresConfig, plain_products: Store
) -> None:
    """It is not open before its opening, without its table, or after its end."""
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


def test_subscribers_receive_the_outcome_of_writes(store: OpenStore[Any]) -> None:
    """There is one event for each writing operation, with its outcome."""
    store.events = Events()
    seen: list[Event] = []
    store.events.subscribe(seen.append, "store")
    store.read(skus)
    store.run(add, "a")
    store.single(add, "b")
    with pytest.raises(ZeroDivisionError):
        store.run(lambda _: 1 / 0)
    with pytest.raises(SystemExit):
        store.run(sys.exit)
    store.ping()
    outcomes = [(each.fields["kind"], each.fields["outcome"]) for each in seen]
    assert outcomes == [("read", "ok"), *[("write", "ok")] * 2, *[("write", "undone")] * 2, ("read", "ok")]


def test_the_drivers_error_is_the_cause_of_a_store_error(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store
) -> None:
    """A log shows both; an error of the store itself has no cause."""
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


def test_an_emptied_file_is_not_taken_for_a_new_one(
    opening: Callable[..., Stores], sqlite_config: StoresConfig, plain_products: Store
) -> None:
    """The file of a new store is never empty, so this one lost its content while no host ran."""
    opening(sqlite_config, plain_products).close()
    (sqlite_config.folder / "catalog.sqlite3").write_bytes(b"")
    with pytest.raises(Damaged, match="was emptied: restore a backup, or delete it to begin empty"):
        opening(sqlite_config, plain_products)["catalog"].read(lambda session: session.rows("SELECT 1"))
