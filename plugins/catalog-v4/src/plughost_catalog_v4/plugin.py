"""Product catalog v4: as v3, with wire shapes apart from the stored record (SPEC Product catalog v4, CONTRACT 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import falcon
import msgspec

from plughost import Route, RouteGroup, hookimpl
from plughost.http import PLAIN_TEXT, read_body, send_array
from plughost_catalog_core import (
    Name,
    Price,
    ProductDraft,
    Sku,
    Stock,
    create_operation,
    delete_operation,
    get_operation,
    list_operation,
    sku_path,
)
from plughost_catalog_store import Catalog, Product

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.http import Request
    from plughost_catalog_store import Line

PREFIX: Final = "/api/v4/products"


class CreateProductRequest(ProductDraft):
    """A product as a client sends it."""


@dataclass(slots=True)  # frozen would make a list take twice as long
class ProductDTO:
    """A product as clients see it: without the id."""

    sku: Sku
    name: Name
    price: Price
    stock: Stock


def to_dto(product: Product) -> ProductDTO:
    """Return a product without its id."""
    return ProductDTO(product.sku, product.name, product.price, product.stock)


class ProductLine(msgspec.Struct):
    """A product in the list: like `ProductDTO`, but with the price as the database returns it, ready for JSON."""

    sku: str
    name: str
    price: float | msgspec.Raw
    stock: int


def to_line(line: Line) -> ProductLine:
    """Return a product of a list without its id."""
    return ProductLine(line.sku, line.name, line.price, line.stock)


class Products:
    """The resource of all products."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """List all products."""
        send_array(resp, ([to_line(line) for line in batch] for batch in self._catalog.lines()))

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create a product."""
        product = self._catalog.create(read_body(req, CreateProductRequest))
        resp.status = falcon.HTTP_201
        resp.location = f"{PREFIX}/{sku_path(product.sku)}"
        resp.media = to_dto(product)


class OneProduct:
    """The resource of one product."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response, sku: str) -> None:
        """Return the product."""
        resp.media = to_dto(self._catalog.get(sku))

    def on_delete(self, req: Request, resp: falcon.Response, sku: str) -> None:
        """Delete the product."""
        self._catalog.delete(sku)
        resp.status = falcon.HTTP_204


@hookimpl
def register_routes(context: PluginContext[Any]) -> list[RouteGroup]:
    """Mount the catalog on the store of catalog-store."""
    catalog = Catalog(context.stores["catalog"])
    create = create_operation(ProductDTO, 4, request=CreateProductRequest)
    routes = (
        Route("", Products(catalog), {"GET": list_operation(ProductDTO, 4), "POST": create}),
        Route("/{sku}", OneProduct(catalog), {"GET": get_operation(ProductDTO, 4), "DELETE": delete_operation(4)}),
    )
    return [RouteGroup(prefix=PREFIX, routes=routes, errors=PLAIN_TEXT, versions=("4.0",), title="Product catalog v4")]
