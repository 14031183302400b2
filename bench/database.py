"""The databases that servers store in: one for each, brought to the same contents before each row."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import psycopg2
from bench.sample import CREATED, MESSAGE, PROFILE, product
from psycopg2.extras import execute_batch

Engine = Literal["sqlite", "postgresql"]
ROOT: Final = Path(__file__).parent.parent

_STORES: Final = {"products": "catalog", "messages": "messages", "profiles": "profiles"}


@dataclass(frozen=True)
class Database:
    """A server's database.

    Attributes:
        engine: `sqlite` or `postgresql`.
        place: The file, the folder of plughost's three files, or the URL.
    """

    engine: Engine
    place: str

    @property
    def url(self) -> str:
        """The URL in a peer's settings."""
        return self.place if self.engine == "postgresql" else f"sqlite:///{self.place}"

    @property
    def settings(self) -> str:
        """The database in plughost's settings."""
        return f'url = "{self.place}"\n' if self.engine == "postgresql" else ""

    def make(self) -> None:
        """Make the tables as plughost's migrations do, with the profile; for a peer."""
        pattern = f"plugins/*/src/*/migrations/{self.engine}/*.sql"
        for migration in sorted(ROOT.glob(pattern)):
            self._run("products", [(migration.read_text(), [])])
        columns = ", ".join(PROFILE)
        marks = ", ".join("?" for _ in PROFILE)
        self._run("profiles", [(f"INSERT INTO profiles ({columns}) VALUES ({marks})", [tuple(PROFILE.values())])])

    def fill(self, products: int) -> None:
        """Leave so many products, and one message."""
        rows = [(number, *product(number).values()) for number in range(1, products + 1)]
        insert = "INSERT INTO products (id, sku, name, price, stock) VALUES (?, ?, ?, ?, ?)"
        self._run("products", [("DELETE FROM products", []), (insert, rows), *self._settled("products", products)])
        insert = "INSERT INTO messages (id, content, created_at) VALUES (?, ?, ?)"
        message = [(1, MESSAGE, CREATED)]
        self._run("messages", [("DELETE FROM messages", []), (insert, message), *self._settled("messages", 1)])

    def commits(self, path: str) -> int:
        """Return how many commits SQLite has made to the table behind a path; 0 where nothing counts them.

        The index of the write-ahead log does (sqlite.org/walformat.html, section 2.1). Each is an fsync.
        """
        index = Path(f"{self._file('messages' if path.startswith('/messages') else 'products')}-shm")
        if self.engine == "postgresql" or not index.exists():
            return 0
        return int.from_bytes(index.read_bytes()[8:12], sys.byteorder)

    def _file(self, table: str) -> Path:
        place = Path(self.place)
        return place / f"{_STORES[table]}.sqlite3" if place.is_dir() else place

    def _settled(self, table: str, last: int) -> list[tuple[str, list[Any]]]:
        """Return what makes PostgreSQL go on after the last id, and know its rows as it does by itself in a minute."""
        if self.engine == "sqlite":
            return []  # AUTOINCREMENT goes on after the highest
        return [(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {last})", []), (f"ANALYZE {table}", [])]

    def _run(self, table: str, statements: Sequence[tuple[str, Sequence[Any]]]) -> None:
        if self.engine == "postgresql":
            with closing(psycopg2.connect(self.place)) as connection, connection, connection.cursor() as cursor:
                for statement, rows in statements:
                    if rows:
                        execute_batch(cursor, statement.replace("?", "%s"), rows, page_size=1000)
                    else:
                        cursor.execute(statement)
            return
        with closing(sqlite3.connect(self._file(table), timeout=20)) as database:
            for statement, rows in statements:
                if rows:
                    database.executemany(statement, rows)
                else:
                    database.executescript(statement)
            database.commit()


def make_database(url: str, name: str) -> str:
    """Make a PostgreSQL database, and return its URL.

    Args:
        url: Of a database on the same server, whose user may create others.
        name: Its name.
    """
    drop_database(url, name)
    _execute(url, f'CREATE DATABASE "{name}"')
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def drop_database(url: str, name: str) -> None:
    """Drop a database that `make_database` made."""
    _execute(url, f'DROP DATABASE IF EXISTS "{name}"')


def _execute(url: str, statement: str) -> None:
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
