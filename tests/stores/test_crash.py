"""A commit whose answer is lost because PostgreSQL crashes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.stores.test_rows import add, skus

from plughost.stores._config import StoresConfig
from plughost.stores._postgresql import PostgreSQLSessions
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    from tests.stores.server import Server

    from plughost import Store
    from plughost.stores import OpenStore
    from plughost.stores._manager import Stores


def test_the_number_of_a_lost_transaction_proves_nothing(
    opening: Callable[..., Stores], plain_products: Store, server: Server, psycopg2: Any, tmp_path: Path
) -> None:
    """After a crash, another transaction gets the number, and its commit is not taken for the lost one's."""
    config = StoresConfig(folder=tmp_path / "stores", url=server.url, patience=30, pause=0.01)
    store = opening(config, plain_products)["catalog"]
    sessions = _sessions(store)
    kept, lost = (sessions.session(Mode.WRITE, time.monotonic() + 30) for _ in range(2))
    add(kept, "kept")
    number_kept, incarnation = kept.rows("SELECT txid_current()")[0][0], kept.connection.incarnation
    kept.commit()
    add(lost, "lost")
    number_lost = lost.rows("SELECT txid_current()")[0][0]
    assert sessions.transaction_status(number_kept, incarnation, time.monotonic()) == "committed"

    server.crash()
    server.start()
    lost.undo()
    with closing(psycopg2.connect(server.url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        number = 0
        while number < number_lost:
            cursor.execute("SELECT txid_current()")
            number = cursor.fetchone()[0]
        cursor.execute("SELECT txid_status(%s)", (number_lost,))
        assert cursor.fetchone() == ("committed",)  # according to the server
    assert sessions.transaction_status(number_lost, incarnation, time.monotonic()) is None
    assert store.read(skus) == ["kept"]


def _sessions(store: OpenStore[Any]) -> PostgreSQLSessions:
    assert store._availability.handle is not None
    sessions = store._availability.handle.sessions
    assert isinstance(sessions, PostgreSQLSessions)
    return sessions
