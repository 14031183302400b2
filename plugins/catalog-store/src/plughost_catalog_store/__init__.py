"""The store `catalog` of plughost, which catalog-v3, catalog-v4 and catalog-crud share.

A plugin whose distribution requires this one finds the open store in its context:

    catalog = Catalog(context.stores["catalog"])
"""

from __future__ import annotations

from plughost_catalog_store.catalog import Catalog, Check
from plughost_catalog_store.table import FIELDS, Line, Product, ProductJSON

__all__ = ["FIELDS", "Catalog", "Check", "Line", "Product", "ProductJSON"]
