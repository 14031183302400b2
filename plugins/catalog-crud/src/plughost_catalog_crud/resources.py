"""The resources below `/products` (CONTRACT 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost.http import encode, preferred, read_body
from plughost_catalog_core import ProductDraft
from plughost_catalog_crud.etags import etag, is_known, precondition, require_match
from plughost_catalog_crud.hal import HAL, JSON, hal_item, hal_list

if TYPE_CHECKING:
    from plughost.http import Paging, Request
    from plughost_catalog_store import Catalog, Product

PREFIX: Final = "/products"
LARGEST_GIVEN_ID: Final = 2**53
"""The largest id that a client may give a product: the largest integer that every JSON reader keeps exact."""


class Products:
    """The resource of all products."""

    def __init__(self, catalog: Catalog, paging: Paging) -> None:
        """Take the catalog, and how it is read."""
        self._catalog = catalog
        self._paging = paging

    def on_get(self, req: Request, resp: falcon.Response, **asked: Any) -> None:
        """Show a page of them."""
        page = self._paging.page(asked)
        total = 0 if page.is_empty else self._catalog.count(page.filters)
        products: list[Product] = []
        if page.offset < total:
            products = self._catalog.page(filters=page.filters, order=page.order, offset=page.offset, limit=page.limit)
        products = page.send(req, resp, products, total)
        _vary(resp)
        if preferred(req, (JSON, HAL)) == HAL:
            resp.content_type = HAL
            resp.data = encode(hal_list(products, _base(req), page.links(_base(req), products, total), page))
        else:
            resp.media = products

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create one."""
        _created(req, resp, self._catalog.create(read_body(req, ProductDraft)))


class Count:
    """The resource of how many products there are."""

    def __init__(self, catalog: Catalog, paging: Paging) -> None:
        """Take the catalog, and how it is read."""
        self._catalog = catalog
        self._paging = paging

    def on_get(self, req: Request, resp: falcon.Response, **asked: Any) -> None:
        """Count those that match the filters: a bare number, whichever JSON is asked for."""
        page = self._paging.page(asked)
        resp.media = 0 if page.is_empty else self._catalog.count(page.filters)


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
        require_match(req, product)
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
