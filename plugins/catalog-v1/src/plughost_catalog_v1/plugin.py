"""Product catalog v1: list and create, in memory (SPEC Product catalog v1, CONTRACT 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import falcon

from plughost import Route, RouteGroup, hookimpl
from plughost.http import PLAIN_TEXT, read_body
from plughost_catalog_core import (
    MemoryCatalog,
    MemorySettings,
    ProductDraft,
    ProductJSON,
    create_operation,
    list_operation,
    send_list,
)

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.http import Request

PREFIX: Final = "/api/v1/products"


class Products:
    """The resource of all products."""

    def __init__(self, catalog: MemoryCatalog) -> None:
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """List all products."""
        send_list(resp, self._catalog.list())

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create a product."""
        product = self._catalog.create(read_body(req, ProductDraft))
        resp.status = falcon.HTTP_201
        resp.data = product.json


@hookimpl
def register_settings() -> type[MemorySettings]:
    """Return the model of `[plugins.catalog-v1]`."""
    return MemorySettings


@hookimpl
def register_routes(context: PluginContext[MemorySettings]) -> list[RouteGroup]:
    """Mount the catalog. Its products live as long as the returned resources."""
    catalog = MemoryCatalog(context.settings.max_products)
    create = create_operation(ProductJSON, 1, located=False, bounded=True)
    routes = (Route("", Products(catalog), {"GET": list_operation(ProductJSON, 1), "POST": create}),)
    return [RouteGroup(prefix=PREFIX, routes=routes, errors=PLAIN_TEXT, versions=("1.0",), title="Product catalog v1")]
