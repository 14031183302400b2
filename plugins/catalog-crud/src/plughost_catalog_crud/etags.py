"""Entity tags and preconditions (RFC 9110, 8.8.3 and 13)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import falcon
import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plughost.http import Request
    from plughost_catalog_store import Product

HAL_SUFFIX: Final = "-hal"

_encode = msgspec.json.Encoder(decimal_format="string").encode


def etag(product: Product, *, hal: bool = False) -> str:
    """Return the ETag of a product, without quotes. It changes only when the product does.

    Args:
        product: The product.
        hal: Whether to return the tag of the HAL representation, which has other bytes.
    """
    tag = hashlib.sha256(_encode(product)).hexdigest()[:32]
    return tag + HAL_SUFFIX if hal else tag


def is_known(req: Request, tag: str) -> bool:
    """Return whether `If-None-Match` contains a tag (weak comparison), so that 304 suffices."""
    known = req.if_none_match
    return known is not None and any(_is_any(each) or each == tag for each in known)


def require_match(req: Request, current: Product | None) -> None:
    """Refuse a request whose `If-Match` doesn't match the current product (RFC 9110, 13.1.1).

    Raises:
        falcon.HTTPPreconditionFailed: No tag matches. An empty `If-Match` never does.
    """
    if req.get_header("If-Match") is not None and not _matches(req.if_match or (), current):
        raise falcon.HTTPPreconditionFailed(description="If-Match: no tag matches the product.")


def check_preconditions(req: Request, current: Product | None) -> None:
    """Refuse a change that a request's `If-Match` or `If-None-Match` excludes.

    Raises:
        falcon.HTTPPreconditionFailed: The current product doesn't meet them.
    """
    require_match(req, current)
    if req.if_none_match is not None and _matches(req.if_none_match, current, weak=True):
        raise falcon.HTTPPreconditionFailed(description="If-None-Match: a tag matches the product.")


def _matches(tags: Sequence[falcon.ETag | str], current: Product | None, *, weak: bool = False) -> bool:
    if current is None:
        return False
    tag = etag(current)
    return any(
        _is_any(each) or (each.removesuffix(HAL_SUFFIX) == tag and (weak or not getattr(each, "is_weak", False)))
        for each in tags
    )


def _is_any(each: falcon.ETag | str) -> bool:
    """Return whether this is the `*` for any product. Falcon returns the tag `"*"` without its quotes, too."""
    return each == "*" and not isinstance(each, falcon.ETag)
