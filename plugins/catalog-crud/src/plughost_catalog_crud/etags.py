"""Entity tags and preconditions (RFC 9110, 8.8.3 and 13)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from plughost.http import check_preconditions

if TYPE_CHECKING:
    from plughost.http import Request
    from plughost_catalog_store import Product

_encode = msgspec.json.Encoder(decimal_format="string").encode


def etag(product: Product, *, hal: bool = False) -> str:
    """Return the ETag of a product, without quotes. It changes only when the product does.

    Args:
        product: The product.
        hal: Whether to return the tag of the HAL representation, which has other bytes.
    """
    tag = hashlib.sha256(_encode(product)).hexdigest()[:32]
    return f"{tag}-hal" if hal else tag


def check_change(req: Request, current: Product | None) -> None:
    """Refuse a change that a request's `If-Match` or `If-None-Match` excludes. Each representation's tag counts.

    Raises:
        falcon.HTTPPreconditionFailed: The current product doesn't meet them.
    """
    tags = () if current is None else (etag(current), etag(current, hal=True))
    check_preconditions(req, *tags)
