"""Product catalog v3: list, get, create and delete, persistent (SPEC Product catalog v3, CONTRACT 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost import Route, RouteGroup, hookimpl
from plughost.http import PLAIN_TEXT, read_body, send_array
from plughost_catalog_core import (
    ProductDraft,
    create_operation,
    delete_operation,
    get_operation,
    list_operation,
    sku_path,
)
from plughost_catalog_store import Catalog, ProductJSON

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.http import Request

PREFIX: Final = "/api/v3/products"


class Products:
    """The resource of all products."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """List all products."""
        send_array(resp, self._catalog.lines())

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create a product."""
        product = self._catalog.create(read_body(req, ProductDraft))
        resp.status = falcon.HTTP_201
        resp.location = f"{PREFIX}/{sku_path(product.sku)}"
        resp.media = product


class OneProduct:
    """The resource of one product."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response, sku: str) -> None:
        """Return the product."""
        resp.media = self._catalog.get(sku)

    def on_delete(self, req: Request, resp: falcon.Response, sku: str) -> None:
        """Delete the product."""
        self._catalog.delete(sku)
        resp.status = falcon.HTTP_204


@hookimpl
def register_routes(context: PluginContext[Any]) -> list[RouteGroup]:
    """Mount the catalog on the store of catalog-store."""
    catalog = Catalog(context.stores["catalog"])
    routes = (
        Route("", Products(catalog), {"GET": list_operation(ProductJSON, 3), "POST": create_operation(ProductJSON, 3)}),
        Route("/{sku}", OneProduct(catalog), {"GET": get_operation(ProductJSON, 3), "DELETE": delete_operation(3)}),
    )
    return [RouteGroup(prefix=PREFIX, routes=routes, errors=PLAIN_TEXT, versions=("3.0",), title="Product catalog v3")]
