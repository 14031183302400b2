"""The contract in Litestar with SQLAlchemy: msgspec structs, a session for each request, threads for the database."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import jwt
import msgspec
from bench.peers import models
from bench.peers.tokens import claims_of
from bench.sample import product
from litestar import Litestar, Request, Response, get, post
from litestar.exceptions import HTTPException, NotAuthorizedException, NotFoundException
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

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


class ProductInMemory(msgspec.Struct, rename="camel"):
    """A product of catalog v2."""

    sku: str
    name: str
    price: float
    stock: int
    in_stock: bool


class StoredProduct(msgspec.Struct):
    """A product of catalog v3."""

    id: int
    sku: str
    name: str
    price: float
    stock: int


class Draft(msgspec.Struct):
    """A message as it is sent to be created."""

    content: Annotated[str, msgspec.Meta(max_length=500)]


class Message(msgspec.Struct, rename="camel"):
    """A message."""

    id: int
    content: str
    created_at: datetime


class Identity(msgspec.Struct, rename="camel"):
    """Whom a token names."""

    email: str
    roles: list[str]
    expires_at: datetime


class Preferences(msgspec.Struct, rename="camel"):
    """How a user likes the app."""

    use_metric_system: bool
    enable_notifications: bool
    dark_mode_preference: str
    rest_timer_duration: int


class Profile(msgspec.Struct, rename="camel"):
    """A user's profile."""

    user_id: str
    display_name: str
    email: str | None
    profile_image_url: str | None
    date_joined: int
    fitness_level: str
    height_cm: float | None
    weight_kg: float | None
    date_of_birth: int | None
    gender: str
    is_premium: bool
    settings: Preferences
    updated_at: int


class Envelope(msgspec.Struct):
    """What the profile is sent in."""

    data: Profile
    timestamp: int
    status: str = "success"
    code: int = 200


kept = {
    each["sku"]: ProductInMemory(each["sku"], each["name"], each["price"], each["stock"], each["stock"] > 0)
    for each in map(product, range(1, 101))
}


def stored(row: models.Product) -> StoredProduct:
    """Return what is sent of a row."""
    return StoredProduct(row.id, row.sku, row.name, float(row.price), row.stock)


@get("/api/v2/products", sync_to_thread=False)
def list_kept() -> list[ProductInMemory]:
    """List the products in memory."""
    return list(kept.values())


@get("/api/v2/products/{sku:str}", sync_to_thread=False)
def get_kept(sku: str) -> ProductInMemory:
    """Show one."""
    if sku not in kept:
        raise NotFoundException(f"Product not found: {sku}")
    return kept[sku]


@post("/api/v2/products", sync_to_thread=False)
def create_kept(data: Product) -> Response[ProductInMemory]:
    """Create one."""
    if data.sku in kept:
        raise HTTPException(f"Product SKU already exists: {data.sku}", status_code=409)
    made = kept[data.sku] = ProductInMemory(data.sku, data.name, float(data.price), data.stock, data.stock > 0)
    return Response(made, headers={"Location": f"/api/v2/products/{data.sku}"})


@get("/api/v3/products", sync_to_thread=True)
def list_stored() -> list[StoredProduct]:
    """List the stored products."""
    with models.Session() as session:
        return [stored(row) for row in session.scalars(select(models.Product).order_by(models.Product.id))]


@get("/api/v3/products/{sku:str}", sync_to_thread=True)
def get_stored(sku: str) -> StoredProduct:
    """Show one."""
    with models.Session() as session:
        found = session.scalars(select(models.Product).where(models.Product.sku == sku)).one_or_none()
    if found is None:
        raise NotFoundException(f"Product not found: {sku}")
    return stored(found)


@post("/api/v3/products", sync_to_thread=True)
def create_stored(data: Product) -> Response[StoredProduct]:
    """Create one."""
    made = models.Product(sku=data.sku, name=data.name, price=data.price, stock=data.stock)
    try:
        with models.Session.begin() as session:
            session.add(made)
    except IntegrityError as error:
        raise HTTPException(f"Product SKU already exists: {data.sku}", status_code=409) from error
    return Response(stored(made), headers={"Location": f"/api/v3/products/{data.sku}"})


@post("/messages", sync_to_thread=True)
def create_message(data: Draft) -> Response[Message]:
    """Create a message."""
    made = models.Message(content=data.content, created_at=datetime.now())
    with models.Session.begin() as session:
        session.add(made)
    return Response(Message(made.id, made.content, made.created_at), headers={"Location": f"/messages/{made.id}"})


@get("/messages/{key:int}", sync_to_thread=True)
def get_message(key: int) -> Message:
    """Show one."""
    with models.Session() as session:
        found = session.get(models.Message, key)
    if found is None:
        raise NotFoundException
    return Message(found.id, found.content, found.created_at)


@get("/mylibrary/setup/secured", sync_to_thread=False)
def secured(request: Request[Any, Any, Any]) -> Identity:
    """Show whom a token names."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    try:
        claims = claims_of(token if scheme.lower() == "bearer" else "")
    except jwt.InvalidTokenError as error:
        raise NotAuthorizedException(headers={"WWW-Authenticate": 'Bearer realm="mylibrary"'}) from error
    return Identity(claims["sub"], claims["roles"], datetime.fromtimestamp(claims["exp"], UTC))


@get("/users/profile", sync_to_thread=True)
def profile() -> Envelope:
    """Show the profile that all share."""
    with models.Session() as session:
        row = session.get_one(models.Profile, "shared")
    settings = Preferences(*(getattr(row, name) for name in Preferences.__struct_fields__))
    fields = {name: getattr(row, name) for name in Profile.__struct_fields__ if name != "settings"}
    return Envelope(data=Profile(**fields, settings=settings), timestamp=time.time_ns() // 1_000_000)


app = Litestar(
    [
        list_kept,
        get_kept,
        create_kept,
        list_stored,
        get_stored,
        create_stored,
        create_message,
        get_message,
        secured,
        profile,
    ],
    openapi_config=None,
)
