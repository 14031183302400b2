"""The yardstick of the stores: catalog v3 by hand, with Falcon, sqlite3 and msgspec and nothing else."""

from __future__ import annotations

import sqlite3
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import falcon
import msgspec
from bench.bare import broken_rules

SCHEMA = """
CREATE TABLE products (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sku VARCHAR(255) NOT NULL UNIQUE,
    name VARCHAR(255) NOT NULL,
    price DECIMAL(15, 4) NOT NULL,
    stock BIGINT NOT NULL
)
"""
PREFIX = "/api/v3/products"
COLUMNS = ("id", "sku", "name", "price", "stock")

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder().encode


class Connections(threading.local):
    """A connection for each thread, with the settings that plughost uses: WAL, and every commit on the disk."""

    def __init__(self, file: Path) -> None:
        """Open the file."""
        self.connection = sqlite3.connect(file, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")


class Products:
    """The list and the create."""

    def __init__(self, connections: Connections) -> None:
        """Take the connections."""
        self._connections = connections

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List all products."""
        rows = self._connections.connection.execute("SELECT id, sku, name, price, stock FROM products ORDER BY id")
        resp.data = _encode([dict(zip(COLUMNS, row, strict=True)) for row in rows])

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create a product."""
        body = _decode(req.bounded_stream.read())
        broken = broken_rules(body)
        if broken:
            raise falcon.HTTPBadRequest(description="\n".join(broken))
        values = (body["sku"], body["name"], float(body["price"]), body["stock"])
        try:
            cursor = self._connections.connection.execute(
                "INSERT INTO products (sku, name, price, stock) VALUES (?, ?, ?, ?)", values
            )
        except sqlite3.IntegrityError as error:
            raise falcon.HTTPConflict(description=f"Product SKU already exists: {body['sku']}") from error
        resp.status = falcon.HTTP_201
        resp.set_header("Location", f"{PREFIX}/{falcon.uri.encode_value(body['sku'])}")
        resp.data = _encode(dict(zip(COLUMNS, (cursor.lastrowid, *values), strict=True)))


class OneProduct:
    """The get."""

    def __init__(self, connections: Connections) -> None:
        """Take the connections."""
        self._connections = connections

    def on_get(self, req: falcon.Request, resp: falcon.Response, sku: str) -> None:
        """Show a product."""
        row = self._connections.connection.execute(
            "SELECT id, sku, name, price, stock FROM products WHERE sku = ?", (sku,)
        ).fetchone()
        if row is None:
            raise falcon.HTTPNotFound(description=f"Product not found: {sku}")
        resp.data = _encode(dict(zip(COLUMNS, row, strict=True)))


def make_app(file: Path) -> falcon.App[Any, Any]:
    """Return the app, which keeps its products in a new file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    connections = Connections(file)
    connections.connection.execute(SCHEMA)
    app = falcon.App()
    app.add_route(PREFIX, Products(connections))
    app.add_route(PREFIX + "/{sku}", OneProduct(connections))
    return app
