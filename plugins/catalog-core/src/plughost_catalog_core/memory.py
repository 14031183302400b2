"""The in-memory catalog of v1 and v2: immutable records, lost on restart."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING

import falcon
from msgspec import Struct
from msgspec.structs import force_setattr
from pydantic import BaseModel, ConfigDict, Field

from plughost.http import encode
from plughost_catalog_core.rules import Name, Price, ProductDraft, ProductExists, ProductNotFound, Sku, Stock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BATCH = 1000


class MemorySettings(BaseModel):
    """The table `[plugins.<name>]` of a catalog in memory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_products: int = Field(
        100_000, ge=0, description="Maximum number of products; a create beyond it is answered 507"
    )


class ProductJSON(BaseModel):
    """A product as clients see it."""

    model_config = ConfigDict(title="Product")

    sku: Sku
    name: Name
    price: Price
    stock: Stock
    inStock: bool = Field(description="Whether `stock` is more than 0.")  # noqa: N815 - the name in JSON


class Product(Struct, frozen=True):
    """A stored product, immutable. To change it, make a new one with `msgspec.structs.replace`.

    Attributes:
        json: The product as `ProductJSON`, encoded once for all responses. Set by the class itself.
    """

    sku: str
    name: str
    price: Decimal
    stock: int
    json: bytes = b""

    def __post_init__(self) -> None:
        fields = {name: getattr(self, name) for name in ("sku", "name", "price", "stock")}
        force_setattr(self, "json", encode({**fields, "inStock": self.in_stock}))

    @property
    def in_stock(self) -> bool:
        """Whether `stock` is more than 0."""
        return self.stock > 0


class CatalogFull(falcon.HTTPInsufficientStorage):
    """The catalog has as many products as its settings allow: 507."""

    def __init__(self, max_products: int) -> None:
        super().__init__(description=f"The catalog is full: it keeps at most {max_products} products")


class MemoryCatalog:
    """Products by SKU, in order of creation. Safe to use from several threads."""

    def __init__(self, max_products: int) -> None:
        """Create an empty catalog.

        Args:
            max_products: The maximum number of products.
        """
        self._max_products = max_products
        self._products: dict[str, Product] = {}
        self._lock = threading.Lock()

    def list(self) -> Sequence[Product]:
        """Return a snapshot of all products, in order of creation."""
        with self._lock:
            return tuple(self._products.values())

    def get(self, sku: str) -> Product:
        """Return a product.

        Raises:
            ProductNotFound: No product has this SKU.
        """
        product = self._products.get(sku)
        if product is None:
            raise ProductNotFound(sku)
        return product

    def create(self, draft: ProductDraft) -> Product:
        """Store a new product.

        Raises:
            ProductExists: Its SKU is taken.
            CatalogFull: The catalog has `max_products` already.
        """
        product = Product(draft.sku, draft.name, draft.price, draft.stock)
        with self._lock:
            if product.sku in self._products:
                raise ProductExists(product.sku)
            if len(self._products) >= self._max_products:
                raise CatalogFull(self._max_products)
            self._products[product.sku] = product
        return product

    def delete(self, sku: str) -> None:
        """Remove a product.

        Raises:
            ProductNotFound: No product has this SKU.
        """
        with self._lock:
            removed = self._products.pop(sku, None)
        if removed is None:
            raise ProductNotFound(sku)


def send_list(resp: falcon.Response, products: Sequence[Product]) -> None:
    """Send products as a JSON array. A long one is streamed, which bounds the memory.

    Args:
        resp: The response.
        products: A snapshot, which nobody changes.
    """
    if len(products) <= _BATCH:
        resp.data = b"[%b]" % b",".join([product.json for product in products])
    else:
        length = sum(len(product.json) for product in products) + len(products) + 1
        resp.set_stream(_chunks(products), length)


def _chunks(products: Sequence[Product]) -> Iterator[bytes]:
    separator = b"["
    for start in range(0, len(products), _BATCH):
        yield separator + b",".join([product.json for product in products[start : start + _BATCH]])
        separator = b","
    yield b"]"
