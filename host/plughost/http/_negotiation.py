"""Which media type to answer with, by the request's `Accept` (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import falcon

if TYPE_CHECKING:
    from collections.abc import Sequence

Offers = tuple[str, ...]

_weight = re.compile(r"[0-9](\.[0-9]*)?|\.[0-9]+").fullmatch


@lru_cache(maxsize=1024)
def best_offer(accept: str, offers: Offers) -> str | None:
    """Return the offer that an Accept header likes best.

    Parameters of a media range other than `q` don't matter (CONTRACT 2). A header that is no list of media
    ranges is taken for `*/*`.

    Args:
        accept: The header's value.
        offers: Media types without parameters, the one to prefer among equals first.

    Returns:
        One of the offers, or None where the header excludes them all.
    """
    ranges = [part for part in (_media_range(text) for text in accept.split(",") if text.strip()) if part]
    if not ranges:
        return offers[0]
    best, best_quality = None, 0.0
    for offer in offers:
        quality = _quality(offer, ranges)
        if quality > best_quality:
            best, best_quality = offer, quality
    return best


def preferred(req: falcon.Request, offers: Sequence[str]) -> str:
    """Return the media type to answer a request with.

    Raises:
        falcon.HTTPNotAcceptable: The request's `Accept` excludes every offer.
    """
    best = best_offer(req.accept or "*/*", tuple(offers))
    if best is None:
        raise not_acceptable(tuple(offers))
    return best


def not_acceptable(offers: Offers) -> falcon.HTTPError:
    """Return the error for an `Accept` that excludes all offers, naming them."""
    return falcon.HTTPNotAcceptable(description=f"This resource is made as {', '.join(offers)}.")


def _media_range(text: str) -> tuple[str, str, float] | None:
    """Return type, subtype and quality of a media range, or None where it is malformed."""
    name, *parameters = text.split(";")
    if name.strip() == "*":
        name = "*/*"  # Java's HttpURLConnection sends it so
    kind, slash, subtype = name.strip().lower().partition("/")
    if not (slash and kind and subtype) or (kind == "*" and subtype != "*"):
        return None
    for parameter in parameters:
        key, _, value = parameter.strip().partition("=")
        if key.strip().lower() == "q":
            return (kind, subtype, min(float(value), 1.0)) if _weight(value.strip()) else None
    return kind, subtype, 1.0


def _quality(offer: str, ranges: Sequence[tuple[str, str, float]]) -> float:
    """Return the quality of an offer by the most specific range that matches it."""
    kind, _, subtype = offer.partition("/")
    found = [
        ((range_kind != "*") + (range_subtype != "*"), quality)
        for range_kind, range_subtype, quality in ranges
        if range_kind in ("*", kind) and range_subtype in ("*", subtype)
    ]
    return max(found)[1] if found else 0.0
