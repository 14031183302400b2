"""The product catalog as generated CRUD at `/products` (SPEC generated CRUD variant, CONTRACT 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from plughost import Route, RouteGroup, hookimpl
from plughost_catalog_crud import operations
from plughost_catalog_crud.resources import PREFIX, Count, OneProduct, Products
from plughost_catalog_store import Catalog

if TYPE_CHECKING:
    from plughost import PluginContext


class Settings(BaseModel):
    """The table `[plugins.catalog-crud]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    maximum_page_size: int = Field(100, ge=1, le=10_000, description="Maximum number of products on a page")


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model of `[plugins.catalog-crud]`."""
    return Settings


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the resources on the store of catalog-store."""
    catalog = Catalog(context.stores["catalog"])
    paging = replace(operations.PAGING, maximum=context.settings.maximum_page_size)
    one = {"GET": operations.GET, "PUT": operations.PUT, "DELETE": operations.DELETE}
    routes = (
        Route("", Products(catalog, paging), {"GET": operations.LIST, "POST": operations.CREATE}),
        Route("/count", Count(catalog, paging), {"GET": operations.COUNT}),
        Route("/{product_id}", OneProduct(catalog), one),
    )
    return [RouteGroup(prefix=PREFIX, routes=routes, versions=("1.0",), title="Product catalog, generated CRUD")]
