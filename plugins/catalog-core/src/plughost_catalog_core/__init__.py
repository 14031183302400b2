"""The product rules that all versions of plughost's catalog share, and the in-memory catalog of v1 and v2."""

from __future__ import annotations

from plughost_catalog_core.memory import (
    CatalogFull,
    MemoryCatalog,
    MemorySettings,
    Product,
    ProductJSON,
    send_list,
)
from plughost_catalog_core.operations import create_operation, delete_operation, get_operation, list_operation
from plughost_catalog_core.rules import (
    MAX_LENGTH,
    MAX_STOCK,
    Name,
    Price,
    ProductDraft,
    ProductExists,
    ProductNotFound,
    Sku,
    Stock,
    sku_path,
)

__all__ = [
    "MAX_LENGTH",
    "MAX_STOCK",
    "CatalogFull",
    "MemoryCatalog",
    "MemorySettings",
    "Name",
    "Price",
    "Product",
    "ProductDraft",
    "ProductExists",
    "ProductJSON",
    "ProductNotFound",
    "Sku",
    "Stock",
    "create_operation",
    "delete_operation",
    "get_operation",
    "list_operation",
    "send_list",
    "sku_path",
]
