"""The plugin catalog-store: it declares the store `catalog` and mounts no route."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from plughost import Store, hookimpl

if TYPE_CHECKING:
    from plughost import PluginContext


@hookimpl
def register_stores(context: PluginContext[Any]) -> list[Store]:
    """Declare the store `catalog`, with the table `products`."""
    folder = files(__package__) / "migrations"
    return [Store(name="catalog", migrations=folder, tables=("products",))]
