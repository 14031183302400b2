"""Catalog v3 as it is commonly written: Falcon and msgspec as in `raw_sqlite.py`, with SQLAlchemy's ORM on SQLite."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import falcon
import msgspec
from bench.bare import broken_rules
from bench.raw_sqlite import PREFIX
from sqlalchemy import BigInteger, Engine, Numeric, String, create_engine, event, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Base(DeclarativeBase):
    """What tables are declared on."""


class Product(Base):
    """The table."""

    __tablename__ = "products"
    __table_args__ = {"sqlite_autoincrement": True}  # noqa: RUF012 - so SQLAlchemy reads it

    id: Mapped[int] = mapped_column(primary_key=True)
    sku: Mapped[str] = mapped_column(String(255), unique=True)
    name: Mapped[str] = mapped_column(String(255))
    price: Mapped[Decimal] = mapped_column(Numeric(15, 4))
    stock: Mapped[int] = mapped_column(BigInteger)

    def shown(self) -> dict[str, Any]:
        """Return what a client sees."""
        return {"id": self.id, "sku": self.sku, "name": self.name, "price": self.price, "stock": self.stock}


class Products:
    """The list and the create."""

    def __init__(self, engine: Engine) -> None:
        """Take the engine."""
        self._engine = engine

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List all products."""
        with Session(self._engine) as session:
            products = session.scalars(select(Product).order_by(Product.id))
            resp.data = _encode([product.shown() for product in products])

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create a product."""
        body = _decode(req.bounded_stream.read())
        broken = broken_rules(body)
        if broken:
            raise falcon.HTTPBadRequest(description="\n".join(broken))
        product = Product(sku=body["sku"], name=body["name"], price=body["price"], stock=body["stock"])
        with Session(self._engine, expire_on_commit=False) as session:
            session.add(product)
            try:
                session.commit()
            except IntegrityError as error:
                raise falcon.HTTPConflict(description=f"Product SKU already exists: {body['sku']}") from error
        resp.status = falcon.HTTP_201
        resp.set_header("Location", f"{PREFIX}/{falcon.uri.encode_value(body['sku'])}")
        resp.data = _encode(product.shown())


class OneProduct:
    """The get."""

    def __init__(self, engine: Engine) -> None:
        """Take the engine."""
        self._engine = engine

    def on_get(self, req: falcon.Request, resp: falcon.Response, sku: str) -> None:
        """Show a product."""
        with Session(self._engine) as session:
            product = session.scalars(select(Product).where(Product.sku == sku)).one_or_none()
            if product is None:
                raise falcon.HTTPNotFound(description=f"Product not found: {sku}")
            resp.data = _encode(product.shown())


def _configure(connection: Any, _: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def make_app(file: Path) -> falcon.App[Any, Any]:
    """Return the app, which keeps its products in a new file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(f"sqlite:///{file}")
    event.listen(engine, "connect", _configure)
    Base.metadata.create_all(engine)
    app = falcon.App()
    app.add_route(PREFIX, Products(engine))
    app.add_route(PREFIX + "/{sku}", OneProduct(engine))
    return app
