"""Entity tags and preconditions (RFC 9110, 8.8.3 and 13)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import falcon
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plughost.http import Request
    from plughost_catalog_store import Product

HAL_SUFFIX: Final = "-hal"

_encode = msgspec.json.Encoder(decimal_format="string").encode


def etag(product: Product, *, hal: bool = False) -> str:
    """Return the tag of a product, without quotes: the same for as long as nothing of it changes.

    Args:
        product: The product.
        hal: Whether it is the tag of the HAL representation, which differs byte for byte.
    """
    tag = hashlib.sha256(_encode(product)).hexdigest()[:32]
    return tag + HAL_SUFFIX if hal else tag


def is_known(req: Request, tag: str) -> bool:
    """Tell whether a client has what a tag names already (`If-None-Match`, by weak comparison)."""
    known = req.if_none_match
    return known is not None and any(each in ("*", tag) for each in known)


def require_match(req: Request, current: Product | None) -> None:
    """Refuse a request whose `If-Match` names another state than the current one (RFC 9110, 13.1.1).

    Raises:
        falcon.HTTPPreconditionFailed: It does. No tag, as of a client that lost its own, matches nothing.
    """
    if req.get_header("If-Match") is not None and not _matches(req.if_match or (), current):
        raise falcon.HTTPPreconditionFailed(description="If-Match: the product is not what it names.")


def precondition(req: Request) -> Callable[[Product | None], None]:
    """Return the check that a request's `If-Match` and `If-None-Match` ask for before anything is changed.

    Returns:
        A function of the current product, or None where there is none; it raises 412 where the check fails.
    """
    unwanted = req.if_none_match

    def check(current: Product | None) -> None:
        require_match(req, current)
        if unwanted is not None and _matches(unwanted, current, weak=True):
            raise falcon.HTTPPreconditionFailed(description="If-None-Match: there is such a product already.")

    return check


def _matches(tags: Sequence[falcon.ETag | str], current: Product | None, *, weak: bool = False) -> bool:
    if current is None:
        return False
    tag = etag(current)
    return any(
        each == "*" or (each.removesuffix(HAL_SUFFIX) == tag and (weak or not getattr(each, "is_weak", False)))
        for each in tags
    )
