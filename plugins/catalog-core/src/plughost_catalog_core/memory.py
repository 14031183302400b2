"""Products in memory, as v1 and v2 keep and show them: immutable records, lost on restart."""

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

    max_products: int = Field(100_000, ge=0, description="Products kept at most; past it a create is answered 507")


class ProductJSON(BaseModel):
    """A product, and whether it is in stock."""

    model_config = ConfigDict(title="Product")

    sku: Sku
    name: Name
    price: Price
    stock: Stock
    inStock: bool = Field(description="Whether there is any: `stock` is more than 0.")  # noqa: N815 - the name on the wire


class Product(Struct, frozen=True):
    """A product on record. It never changes: a change makes a new record, with `msgspec.structs.replace`.

    Attributes:
        sku: Identifies it.
        name: Its name.
        price: Its price.
        stock: How many there are.
        json: The record as a client sees it, encoded once for all answers: `ProductJSON`. It is made here.
    """

    sku: str
    name: str
    price: Decimal
    stock: int
    json: bytes = b""

    def __post_init__(self) -> None:
        shown = {
            "sku": self.sku,
            "name": self.name,
            "price": self.price,
            "stock": self.stock,
            "inStock": self.stock > 0,
        }
        force_setattr(self, "json", encode(shown))

    @property
    def in_stock(self) -> bool:
        """Whether there is any."""
        return self.stock > 0


class CatalogFull(falcon.HTTPInsufficientStorage):
    """The catalog keeps as many products as its settings allow: 507."""

    def __init__(self, max_products: int) -> None:
        """Name the bound."""
        super().__init__(description=f"The catalog is full: it keeps at most {max_products} products")


class MemoryCatalog:
    """Products by SKU, in order of creation. Safe to use from several threads."""

    def __init__(self, max_products: int) -> None:
        """Make an empty catalog.

        Args:
            max_products: How many it keeps at most.
        """
        self._max_products = max_products
        self._products: dict[str, Product] = {}
        self._lock = threading.Lock()

    def list(self) -> Sequence[Product]:
        """Return all products as they are at this moment, in order of creation."""
        with self._lock:
            return tuple(self._products.values())

    def get(self, sku: str) -> Product:
        """Return a product.

        Raises:
            ProductNotFound: There is none with this SKU.
        """
        product = self._products.get(sku)
        if product is None:
            raise ProductNotFound(sku)
        return product

    def create(self, draft: ProductDraft) -> Product:
        """Take a new product on record.

        Raises:
            ProductExists: Its SKU is taken.
            CatalogFull: There is no room for more.
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
            ProductNotFound: There is none with this SKU.
        """
        with self._lock:
            removed = self._products.pop(sku, None)
        if removed is None:
            raise ProductNotFound(sku)


def send_list(resp: falcon.Response, products: Sequence[Product]) -> None:
    """Answer with products as a JSON array; a long one in parts, so that it isn't in memory as a whole.

    Args:
        resp: The response.
        products: A snapshot that doesn't change any more.
    """
    if len(products) <= _BATCH:
        resp.data = b"[%b]" % b",".join([product.json for product in products])
    else:
        length = sum(len(product.json) for product in products) + len(products) + 1
        resp.set_stream(_parts(products), length)


def _parts(products: Sequence[Product]) -> Iterator[bytes]:
    before = b"["
    for start in range(0, len(products), _BATCH):
        yield before + b",".join([product.json for product in products[start : start + _BATCH]])
        before = b","
    yield b"]"
