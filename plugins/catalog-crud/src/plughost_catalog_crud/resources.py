"""The resources below `/products` (CONTRACT 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import falcon

from plughost.http import encode, preferred, read_body
from plughost_catalog_core import ProductDraft
from plughost_catalog_crud.etags import etag, is_known, precondition
from plughost_catalog_crud.hal import HAL, JSON, hal_item, hal_list, link_header, page_links
from plughost_catalog_crud.queries import Value, filtered, query_of

if TYPE_CHECKING:
    from plughost.http import Request
    from plughost_catalog_store import Catalog, Product

Values = tuple[Value, ...]

PREFIX: Final = "/products"
LARGEST_GIVEN_ID: Final = 2**53
"""The largest id that a client may give a product: the largest integer that every JSON reader keeps exact."""


class Products:
    """The resource of all products."""

    def __init__(self, catalog: Catalog, maximum_size: int) -> None:
        """Take the catalog, and how many products a page may have."""
        self._catalog = catalog
        self._maximum_size = maximum_size

    def on_get(
        self, req: Request, resp: falcon.Response, page: int, size: int, sort: tuple[str, ...], **filters: Values
    ) -> None:
        """Show a page of them."""
        query = query_of(page, size, sort, filters, self._maximum_size)
        total = 0 if query.impossible else self._catalog.count(query.filters)
        offset = query.page * query.size
        products: list[Product] = []
        if offset < total:
            products = self._catalog.page(filters=query.filters, order=query.order, offset=offset, limit=query.size)
        pages = page_links(_base(req), query, total)
        resp.set_header("Link", link_header(pages))
        resp.set_header("X-Total-Count", str(total))
        _vary(resp)
        if preferred(req, (JSON, HAL)) == HAL:
            resp.content_type = HAL
            resp.data = encode(hal_list(products, _base(req), pages, query))
        else:
            resp.media = products

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create one."""
        _created(req, resp, self._catalog.create(read_body(req, ProductDraft)))


class Count:
    """The resource of how many products there are."""

    def __init__(self, catalog: Catalog) -> None:
        """Take the catalog."""
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response, **filters: Values) -> None:
        """Count those that match the filters: a bare number, whichever JSON is asked for."""
        query = filtered(filters)
        resp.media = 0 if query.impossible else self._catalog.count(query.filters)


class OneProduct:
    """The resource of one product."""

    def __init__(self, catalog: Catalog) -> None:
        """Take the catalog."""
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response, product_id: int) -> None:
        """Show it, unless the client has it already."""
        product = self._catalog.find(product_id)
        if product is None:
            raise _absent(product_id)
        tag = etag(product, hal=preferred(req, (JSON, HAL)) == HAL)
        if is_known(req, tag):
            resp.status = falcon.HTTP_304
            resp.etag = tag
            _vary(resp)
        else:
            _show(req, resp, product)

    def on_put(self, req: Request, resp: falcon.Response, product_id: int) -> None:
        """Replace it, or create it under this id."""
        draft = read_body(req, ProductDraft)
        asked_for = precondition(req)

        def check(current: Product | None) -> None:
            asked_for(current)
            if current is None and product_id > LARGEST_GIVEN_ID:
                raise _absent(product_id)

        product, is_new = self._catalog.put(product_id, draft, check)
        if is_new:
            _created(req, resp, product)
        else:
            resp.status = falcon.HTTP_204

    def on_delete(self, req: Request, resp: falcon.Response, product_id: int) -> None:
        """Remove it."""
        if not self._catalog.remove(product_id, precondition(req)):
            raise _absent(product_id)
        resp.status = falcon.HTTP_204


def _created(req: Request, resp: falcon.Response, product: Product) -> None:
    resp.status = falcon.HTTP_201
    resp.location = f"{_base(req)}/{product.id}"
    _show(req, resp, product)


def _show(req: Request, resp: falcon.Response, product: Product) -> None:
    hal = preferred(req, (JSON, HAL)) == HAL
    resp.etag = etag(product, hal=hal)
    _vary(resp)
    if hal:
        resp.content_type = HAL
        resp.data = encode(hal_item(product, _base(req)))
    else:
        resp.media = product


def _vary(resp: falcon.Response) -> None:
    resp.append_header("Vary", "Accept")


def _base(req: Request) -> str:
    """Return the absolute address of the list, as the client reached it."""
    return req.prefix + PREFIX


def _absent(product_id: int) -> falcon.HTTPNotFound:
    return falcon.HTTPNotFound(description=f"Product not found: {product_id}")
