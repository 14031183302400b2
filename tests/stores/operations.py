"""Operations on a store of products, as in a plugin."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pony.orm import select


def add(db: Any, sku: str, name: str = "", price: Decimal = Decimal("19.99"), stock: int = 1) -> int:
    """Add a product and return its id."""
    product = db.Product(sku=sku, name=name, price=price, stock=stock)
    db.flush()
    return int(product.id)


def get(db: Any, sku: str) -> tuple[str, str, Decimal, int] | None:
    """Return a product's values."""
    product = db.Product.get(sku=sku)
    return None if product is None else (product.sku, product.name, product.price, product.stock)


def skus(db: Any) -> list[str]:
    """Return all SKUs."""
    return sorted(select(p.sku for p in db.Product))


def count(db: Any) -> int:
    """Return the number of products."""
    return int(select(p for p in db.Product).count())


def take_one(db: Any, sku: str) -> int:
    """Take one from a product's stock, and return the remaining stock."""
    product = db.Product.get(sku=sku)
    product.stock -= 1
    return int(product.stock)
