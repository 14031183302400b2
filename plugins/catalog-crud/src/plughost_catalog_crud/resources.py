"""The resources below `/products` (CONTRACT 5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost.http import check_preconditions, encode, preferred, read_body
from plughost_catalog_core import ProductDraft
from plughost_catalog_crud.etags import check_change, etag
from plughost_catalog_crud.hal import HAL, JSON, hal_item, hal_list

if TYPE_CHECKING:
    from plughost.http import Paging, Request
    from plughost_catalog_store import Catalog, Product

PREFIX: Final = "/products"
MAX_CLIENT_ID: Final = 2**53
"""The largest id that a client can choose: every JSON parser represents integers up to it exactly."""


class Products:
    """The resource of all products."""

    def __init__(self, catalog: Catalog, paging: Paging) -> None:
        self._catalog = catalog
        self._paging = paging

    def on_get(self, req: Request, resp: falcon.Response, **query: Any) -> None:
        """Return a page of products."""
        page = self._paging.page(query)
        total = 0 if page.is_empty else self._catalog.count(page.filters)
        products: list[Product] = []
        if page.offset < total:
            products = self._catalog.page(filters=page.filters, order=page.order, offset=page.offset, limit=page.limit)
        products = page.send(req, resp, products, total)
        _vary(resp)
        if preferred(req, (JSON, HAL)) == HAL:
            resp.content_type = HAL
            resp.data = encode(hal_list(products, _list_url(req), page.links(_list_url(req), products, total), page))
        else:
            resp.media = products

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create a product."""
        _send_created(req, resp, self._catalog.create(read_body(req, ProductDraft)))


class Count:
    """The resource of the number of products."""

    def __init__(self, catalog: Catalog, paging: Paging) -> None:
        self._catalog = catalog
        self._paging = paging

    def on_get(self, req: Request, resp: falcon.Response, **query: Any) -> None:
        """Return the number of matching products, a bare JSON number in both formats."""
        page = self._paging.page(query)
        resp.media = 0 if page.is_empty else self._catalog.count(page.filters)


class OneProduct:
    """The resource of one product."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def on_get(self, req: Request, resp: falcon.Response, product_id: int) -> None:
        """Return the product, or 304 if the client's copy is current."""
        product = self._catalog.find(product_id)
        if product is None:
            raise _not_found(product_id)
        tag = etag(product, hal=preferred(req, (JSON, HAL)) == HAL)
        if check_preconditions(req, tag):
            resp.status = falcon.HTTP_304
            resp.etag = tag
            _vary(resp)
        else:
            _send_product(req, resp, product)

    def on_put(self, req: Request, resp: falcon.Response, product_id: int) -> None:
        """Replace the product, or create it with this id."""
        draft = read_body(req, ProductDraft)

        def check(current: Product | None) -> None:
            check_change(req, current)
            if current is None and product_id > MAX_CLIENT_ID:
                raise _not_found(product_id)

        product, is_new = self._catalog.put(product_id, draft, check)
        if is_new:
            _send_created(req, resp, product)
        else:
            resp.status = falcon.HTTP_204

    def on_delete(self, req: Request, resp: falcon.Response, product_id: int) -> None:
        """Delete the product."""
        if not self._catalog.remove(product_id, partial(check_change, req)):
            raise _not_found(product_id)
        resp.status = falcon.HTTP_204


def _send_created(req: Request, resp: falcon.Response, product: Product) -> None:
    resp.status = falcon.HTTP_201
    resp.location = f"{_list_url(req)}/{product.id}"
    _send_product(req, resp, product)


def _send_product(req: Request, resp: falcon.Response, product: Product) -> None:
    hal = preferred(req, (JSON, HAL)) == HAL
    resp.etag = etag(product, hal=hal)
    _vary(resp)
    if hal:
        resp.content_type = HAL
        resp.data = encode(hal_item(product, _list_url(req)))
    else:
        resp.media = product


def _vary(resp: falcon.Response) -> None:
    resp.append_header("Vary", "Accept")


def _list_url(req: Request) -> str:
    """Return the absolute URL of the list, as the client reached it."""
    return req.prefix + PREFIX


def _not_found(product_id: int) -> falcon.HTTPNotFound:
    return falcon.HTTPNotFound(description=f"Product not found: {product_id}")
