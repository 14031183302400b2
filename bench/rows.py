"""What is measured: the endpoints of the contract, and the ratios that are aimed at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from bench.database import Engine
from bench.sample import product

SKU: Final = product(50)["sku"]
_PRODUCT: Final = '{"sku": "SKU-%s-%d", "name": "Green tea, 250 g", "price": 19.99, "stock": 12}'
MESSAGE: Final = '{"content": "Water the plants in the hall: %s %d"}'
_V2: Final = "/api/v2/products"
_V3: Final = "/api/v3/products"


@dataclass(frozen=True)
class Row:
    """A line of the tables.

    Attributes:
        name: What the options call it.
        title: What the tables call it.
        path: What is asked for.
        body: The body of a POST, else empty. `%s` and `%d` are replaced, so that each body is unique.
        products: How many there are in the store.
        connections: How many clients ask at once.
        duration_factor: How many times longer it is measured than others, since its requests are slow.
        engine: The database that servers store in.
        hangs: Whether it is measured with and without another plugin whose store hangs.
    """

    name: str
    title: str
    path: str
    body: str = ""
    products: int = 100
    connections: int = 32
    duration_factor: int = 1
    engine: Engine = "sqlite"
    hangs: bool = False

    @property
    def method(self) -> str:
        """The method."""
        return "POST" if self.body else "GET"

    @property
    def durable(self) -> bool:
        """Whether each request brings something to the disk."""
        return bool(self.body) and not self.path.startswith(_V2)


_STORED: Final = (
    Row("stored-get", "get one, SQLite", f"{_V3}/{SKU}"),
    Row("stored-list", "list of 100, SQLite", _V3),
    Row("stored-list-10k", "list of 10,000, SQLite", _V3, products=10_000, connections=4, duration_factor=3),
    Row("stored-create", "create, SQLite", _V3, _PRODUCT),
)
ROWS: Final = (
    Row("get", "get one, in memory", f"{_V2}/{SKU}"),
    Row("get-64", "get one, in memory, 64 clients", f"{_V2}/{SKU}", connections=64),
    Row("get-hang", "get one, in memory, while messages hang", f"{_V2}/{SKU}", hangs=True),
    Row("list", "list of 100, in memory", _V2),
    Row("secured", "secured by a token", "/mylibrary/setup/secured"),
    Row("profile", "user profile, SQLite", "/users/profile"),
    Row("message-get", "get a message, SQLite", "/messages/1"),
    *_STORED[:3],
    Row("create", "create, in memory", _V2, _PRODUCT),
    Row("message-create", "create a message, SQLite", "/messages", MESSAGE),
    _STORED[3],
    *(
        replace(
            row,
            name=row.name.replace("stored", "pg"),
            title=row.title.replace("SQLite", "PostgreSQL"),
            engine="postgresql",
        )
        for row in _STORED
    ),
)
"""The creates come last, since nothing takes away again what they leave in memory."""

QUICK: Final = "get,list,create,stored-get,stored-list,stored-create"


@dataclass(frozen=True)
class Goal:
    """A ratio that is aimed at: how many times as good as another server plughost is.

    Attributes:
        rows: The rows, by name.
        against: The server, by name.
        by: What is compared: CPU a request, or requests a second.
        at_least: The ratio.
    """

    rows: tuple[str, ...]
    against: str
    by: Literal["cpu", "rate"]
    at_least: float


_MEMORY: Final = ("get", "list", "create")
_STORES: Final = tuple(f"{store}-{what}" for store in ("stored", "pg") for what in (*_MEMORY, "list-10k"))
_FLOORS: Final = ("falcon", "falcon-1")
_OF_THE_FLOOR: Final = {
    "get": 0.65,
    "list": 0.95,
    "create": 0.85,
    "stored-get": 0.5,
    "stored-list": 0.7,
    "stored-list-10k": 0.7,
    "stored-create": 0.6,
    "pg-get": 0.6,
    "pg-list": 0.7,
    "pg-list-10k": 0.7,
    "pg-create": 0.7,
}
GOALS: Final = (
    *(Goal((row,), floor, "cpu", ratio) for row, ratio in _OF_THE_FLOOR.items() for floor in _FLOORS),
    Goal(_MEMORY, "litestar", "rate", 1.8),
    Goal(_MEMORY, "fastapi-2", "rate", 1.8),
    *(Goal(_STORES, peer, "rate", 3.0) for peer in ("litestar", "fastapi", "fastapi-2", "flask", "django")),
)
