"""Which media type to answer with, by the request's `Accept` (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import falcon

from plughost.http._fields import CLIENT_CACHE_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

Offers = tuple[str, ...]

_other_parameter = re.compile(r";(?!\s*q\s*=)[^;,]*")
_range = re.compile(
    r"\s*(?P<type>\*(/\*)?|[^\s/;*]+/[^\s/;]+)\s*(;\s*q\s*=\s*(?P<weight>0(\.\d*)?|\.\d+|1(\.0*)?)\s*)?"
).fullmatch


@lru_cache(maxsize=CLIENT_CACHE_SIZE)
def best_offer(accept: str, offers: Offers) -> str | None:
    """Return the offer that an Accept header prefers, the first among equals. None if it excludes them all.

    Parameters of a media range other than `q` are ignored (CONTRACT 2). A header without any valid media range
    counts as `*/*`. Falcon's `best_match` is not used: it keeps the parsed ranges of 128 headers, hundreds of MB.
    """
    weights: dict[str, float] = {}
    for match in filter(None, map(_range, _other_parameter.sub("", accept.lower()).split(","))):
        kind = "*/*" if match["type"] == "*" else match["type"]
        weights[kind] = max(weights.get(kind, 0.0), float(match["weight"] or 1))
    if not weights:
        return offers[0]

    def weight(offer: str) -> float:
        kind = offer.partition(";")[0].strip().lower()
        ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")  # the most specific one counts
        return next((weights[each] for each in ranges if each in weights), 0.0)

    best = max(offers, key=weight)
    return best if weight(best) > 0 else None


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
    return falcon.HTTPNotAcceptable(description=f"This resource is made as {', '.join(offers)}.")
