"""The plugin catalog-store: it offers the store `catalog`, and mounts nothing."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from plughost import hookimpl
from plughost.declarations import Store
from plughost_catalog_store.table import ProductTable

if TYPE_CHECKING:
    from plughost.context import PluginContext


@hookimpl
def register_stores(context: PluginContext[Any]) -> list[Store]:
    """Offer the store `catalog`, with the table `products`."""
    folder = files(__package__) / "migrations"
    return [Store(name="catalog", entities=ProductTable, migrations=folder, tables=("products",))]
