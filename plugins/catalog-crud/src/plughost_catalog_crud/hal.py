"""The hypermedia format HAL (SPEC generated CRUD, CONTRACT 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plughost.http import Page
    from plughost_catalog_store import Product

JSON: Final = "application/json"
HAL: Final = "application/hal+json"


def hal_item(product: Product, base: str) -> dict[str, Any]:
    """Return a product in HAL."""
    address = f"{base}/{product.id}"
    links = {"self": address, "update": address, "remove": address, **_common_links(base)}
    return {**msgspec.structs.asdict(product), "_links": _as_links(links)}


def hal_list(products: Iterable[Product], base: str, pages: Mapping[str, str], page: Page) -> dict[str, Any]:
    """Return a page of products in HAL. Its `count` link keeps the filters."""
    items = [hal_item(product, base) for product in products]
    links = {"self": f"{base}?{page.query()}", **_common_links(base), **pages}
    if page.asked:
        links["count"] += f"?{page.filter_query()}"
    return {"_embedded": {"product": items}, "_links": _as_links(links)}


def _common_links(base: str) -> dict[str, str]:
    return {"add": base, "list": base, "count": f"{base}/count"}


def _as_links(links: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"href": address} for name, address in links.items()}
