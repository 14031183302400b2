"""The floor: Falcon with msgspec, and sqlite3 or psycopg2, all by hand. It does what the contract asks, and no more."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, TypeVar

import falcon
import jwt
import msgspec
import psycopg2
from bench.peers.tokens import claims_of
from bench.sample import product

_encode = msgspec.json.Encoder(decimal_format="number").encode
_url = os.environ["BENCH_DATABASE"]
Struct = TypeVar("Struct")

Text = Annotated[str, msgspec.Meta(max_length=255, pattern=r"\S")]


class Product(msgspec.Struct):
    """A product as it is sent to be created."""

    sku: Text
    name: Text
    price: Decimal
    stock: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

    def __post_init__(self) -> None:
        """Check what msgspec can't: a number that is exact."""
        if not 0 <= self.price < 10**11:
            raise ValueError("price must be a number from 0")


class InMemory(msgspec.Struct):
    """A product of catalog v2."""

    sku: str
    name: str
    price: Decimal
    stock: int
    inStock: bool  # noqa: N815 - the name on the wire


class Stored(msgspec.Struct):
    """A product of catalog v3."""

    id: int
    sku: str
    name: str
    price: float | Decimal
    stock: int


class Draft(msgspec.Struct):
    """A message as it is sent to be created."""

    content: Annotated[str, msgspec.Meta(max_length=500)]


_decode_product = msgspec.json.Decoder(Product)
_decode_draft = msgspec.json.Decoder(Draft)


def read(req: falcon.Request, decoder: msgspec.json.Decoder[Struct]) -> Struct:
    """Return a request's body."""
    try:
        return decoder.decode(req.bounded_stream.read())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
        raise falcon.HTTPBadRequest(description=str(error)) from error


class Connections(threading.local):
    """A connection for each thread, without transactions around single statements."""

    def __init__(self) -> None:
        self.connection: Any
        if _url.startswith("postgresql"):
            self.connection = psycopg2.connect(_url)
            self.connection.autocommit = True
        else:
            self.connection = sqlite3.connect(_url.removeprefix("sqlite:///"), isolation_level=None)
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute("PRAGMA synchronous = FULL")


class Database:
    """Runs statements, written with `?` for each value."""

    def __init__(self) -> None:
        self._connections = Connections()
        self._mark = "%s" if _url.startswith("postgresql") else "?"

    def statement(self, text: str) -> str:
        """Return a statement as the database wants it."""
        return text.replace("?", self._mark)

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run one, and return its rows."""
        cursor = self._connections.connection.cursor()
        cursor.execute(statement, values)
        rows: list[Any] = cursor.fetchall()
        return rows


class MemoryProducts:
    """The products of catalog v2."""

    def __init__(self) -> None:
        """Start with 100."""
        self.products: dict[str, InMemory] = {}
        for number in range(1, 101):
            each = product(number)
            self.products[each["sku"]] = InMemory(each["sku"], each["name"], Decimal(str(each["price"])), 12, True)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List them."""
        resp.data = _encode(list(self.products.values()))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create one."""
        new = read(req, _decode_product)
        made = InMemory(new.sku, new.name, new.price, new.stock, new.stock > 0)
        if self.products.setdefault(new.sku, made) is not made:
            raise falcon.HTTPConflict(description=f"Product SKU already exists: {new.sku}")
        resp.status = falcon.HTTP_201
        resp.set_header("Location", f"/api/v2/products/{falcon.uri.encode_value(new.sku)}")
        resp.data = _encode(made)

    def on_get_one(self, req: falcon.Request, resp: falcon.Response, sku: str) -> None:
        """Show one."""
        found = self.products.get(sku)
        if found is None:
            raise falcon.HTTPNotFound(description=f"Product not found: {sku}")
        resp.data = _encode(found)


class Products:
    """The products of catalog v3."""

    def __init__(self, database: Database) -> None:
        self._run = database.run
        self._all = "SELECT id, sku, name, price, stock FROM products ORDER BY id"
        self._one = database.statement("SELECT id, sku, name, price, stock FROM products WHERE sku = ?")
        self._insert = database.statement(
            "INSERT INTO products (sku, name, price, stock) VALUES (?, ?, ?, ?) RETURNING id"
        )
        self._number = Decimal if _url.startswith("postgresql") else float

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List them."""
        resp.data = _encode([Stored(*row) for row in self._run(self._all)])

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create one."""
        new = read(req, _decode_product)
        values = (new.sku, new.name, self._number(new.price), new.stock)
        try:
            ((key,),) = self._run(self._insert, values)
        except (sqlite3.IntegrityError, psycopg2.IntegrityError) as error:
            raise falcon.HTTPConflict(description=f"Product SKU already exists: {new.sku}") from error
        resp.status = falcon.HTTP_201
        resp.set_header("Location", f"/api/v3/products/{falcon.uri.encode_value(new.sku)}")
        resp.data = _encode(Stored(key, *values))

    def on_get_one(self, req: falcon.Request, resp: falcon.Response, sku: str) -> None:
        """Show one."""
        rows = self._run(self._one, (sku,))
        if not rows:
            raise falcon.HTTPNotFound(description=f"Product not found: {sku}")
        resp.data = _encode(Stored(*rows[0]))


class Messages:
    """The messages."""

    def __init__(self, database: Database) -> None:
        self._run = database.run
        self._one = database.statement("SELECT id, content, created_at FROM messages WHERE id = ?")
        self._insert = database.statement("INSERT INTO messages (content, created_at) VALUES (?, ?) RETURNING id")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create one."""
        content, created = read(req, _decode_draft).content, datetime.now().isoformat()
        ((key,),) = self._run(self._insert, (content, created))
        resp.status = falcon.HTTP_201
        resp.set_header("Location", f"/messages/{key}")
        resp.data = _encode({"id": key, "content": content, "createdAt": created})

    def on_get_one(self, req: falcon.Request, resp: falcon.Response, key: int) -> None:
        """Show one."""
        rows = self._run(self._one, (key,))
        if not rows:
            raise falcon.HTTPNotFound
        _, content, created = rows[0]
        moment = created.replace(" ", "T") if isinstance(created, str) else created
        resp.data = _encode({"id": key, "content": content, "createdAt": moment})


class Secured:
    """A resource for whoever has a token."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show whom it names."""
        scheme, _, token = (req.auth or "").partition(" ")
        try:
            claims = claims_of(token if scheme.lower() == "bearer" else "")
        except jwt.InvalidTokenError as error:
            raise falcon.HTTPUnauthorized(challenges=['Bearer realm="mylibrary"']) from error
        ends = datetime.fromtimestamp(claims["exp"], UTC)
        resp.data = _encode({"email": claims["sub"], "roles": claims["roles"], "expiresAt": ends})


class Profile:
    """The profile that all share."""

    _settings = ("useMetricSystem", "enableNotifications", "darkModePreference", "restTimerDuration")

    def __init__(self, database: Database) -> None:
        self._run = database.run
        self._select = (
            "SELECT user_id, display_name, email, profile_image_url, date_joined, fitness_level, height_cm, weight_kg,"
            " date_of_birth, gender, is_premium, use_metric_system, enable_notifications, dark_mode_preference,"
            " rest_timer_duration, updated_at FROM profiles WHERE owner = 'shared'"
        )

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show it."""
        ((user, name, email, image, joined, level, height, weight, born, gender, premium, *settings, updated),) = (
            self._run(self._select)
        )
        metric, notify, *others = settings
        data = {
            "userId": user,
            "displayName": name,
            "email": email,
            "profileImageUrl": image,
            "dateJoined": joined,
            "fitnessLevel": level,
            "heightCm": height,
            "weightKg": weight,
            "dateOfBirth": born,
            "gender": gender,
            "isPremium": bool(premium),
            "settings": dict(zip(self._settings, (bool(metric), bool(notify), *others), strict=True)),
            "updatedAt": updated,
        }
        resp.data = _encode({"status": "success", "data": data, "code": 200, "timestamp": time.time_ns() // 1_000_000})


database = Database()
app: falcon.App[Any, Any] = falcon.App()
for prefix, resource in (("/api/v2/products", MemoryProducts()), ("/api/v3/products", Products(database))):
    app.add_route(prefix, resource)
    app.add_route(prefix + "/{sku}", resource, suffix="one")
messages = Messages(database)
app.add_route("/messages", messages)
app.add_route("/messages/{key:int}", messages, suffix="one")
app.add_route("/mylibrary/setup/secured", Secured())
app.add_route("/users/profile", Profile(database))
