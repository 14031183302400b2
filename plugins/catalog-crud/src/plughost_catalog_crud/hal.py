"""Links, and the hypermedia format HAL (SPEC generated CRUD, CONTRACT 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plughost_catalog_crud.queries import Query
    from plughost_catalog_store import Product

JSON: Final = "application/json"
HAL: Final = "application/hal+json"


def page_links(base: str, query: Query, total: int) -> dict[str, str]:
    """Return the absolute addresses of the pages around a page: first, last, previous, prev and next.

    Args:
        base: The absolute address of the list.
        query: The page.
        total: How many products there are on all pages.
    """
    last = max(0, (total - 1) // query.size)
    pages = {"first": 0, "last": last}
    if query.page > 0:
        pages["previous"] = pages["prev"] = min(query.page - 1, last)
    if query.page < last:
        pages["next"] = query.page + 1
    return {name: f"{base}?{query.of_page(page).text()}" for name, page in pages.items()}


def link_header(links: Mapping[str, str]) -> str:
    """Return links as the header `Link` has them (RFC 8288)."""
    return ", ".join(f'<{address}>; rel="{name}"' for name, address in links.items())


def hal_item(product: Product, base: str) -> dict[str, Any]:
    """Return a product in HAL."""
    own = f"{base}/{product.id}"
    links = {"self": own, "update": own, "remove": own, **_common(base)}
    return {**msgspec.structs.asdict(product), "_links": _as_links(links)}


def hal_list(products: Iterable[Product], base: str, pages: Mapping[str, str], query: Query) -> dict[str, Any]:
    """Return a page of products in HAL; its link to the count keeps the filters."""
    items = [hal_item(product, base) for product in products]
    links = {"self": f"{base}?{query.text()}", **_common(base), **pages}
    if query.asked:
        links["count"] += f"?{query.filter_text()}"
    return {"_embedded": {"product": items}, "_links": _as_links(links)}


def _common(base: str) -> dict[str, str]:
    return {"add": base, "list": base, "count": f"{base}/count"}


def _as_links(links: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"href": address} for name, address in links.items()}
