"""Connections to PostgreSQL that the host shuts down, since the server takes too long."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plughost.stores._config import StoresConfig
from plughost.stores._errors import ConnectionLost, Unavailable
from plughost.stores._postgresql import PostgreSQL


@pytest.fixture
def database(postgresql: str, tmp_path: Path) -> PostgreSQL:
    """A store in a database created for this test."""
    config = StoresConfig(folder=tmp_path, url=postgresql, patience=0.1, statement_timeout=0.1)
    return PostgreSQL("notes", config.of("notes"))


def test_a_connection_at_the_end_of_its_time_can_be_used_or_is_an_error(database: PostgreSQL) -> None:
    """Over one that was shut down, a write would count as perhaps done, though it was never sent."""
    begun = time.monotonic()
    database.connect(60).close()
    took, limits, opened = time.monotonic() - begun, random.Random(1), 0
    for _ in range(200):
        with suppress(Unavailable), closing(database.connect(limits.uniform(0, 2 * took))) as connection:
            opened += 1
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
    assert opened


def test_a_claim_of_a_connection_that_was_cut_off_is_an_error(
    database: PostgreSQL, wait_for: Callable[..., None]
) -> None:
    """The server gives it to another host, which would run the same job."""

    def query(db: Any) -> None:
        with database.claims()._limited(db.connection):
            assert db.rows("SELECT 1") == [(1,)]
            wait_for(lambda: db.connection.was_cut_off)

    with database.administer() as db, pytest.raises(ConnectionLost, match="store notes: it took too long"):
        query(db)


def test_a_connection_that_was_cut_off_is_not_used_again(database: PostgreSQL, wait_for: Callable[..., None]) -> None:
    """It looks as if it were in order if its last query was answered before."""
    with closing(PostgreSQL("notes", replace(database.config, patience=60)).sessions(for_pony=False)) as pool:
        connection = pool.acquire(time.monotonic() - 1)
        wait_for(lambda: connection.was_cut_off)
        pool.release(connection)
        other = pool.acquire(time.monotonic() + 60)
        assert other is not connection
        pool.release(other)
