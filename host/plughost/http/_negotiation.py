"""Which media type to answer with, by the request's `Accept` (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import falcon
from falcon import mediatypes

if TYPE_CHECKING:
    from collections.abc import Sequence

Offers = tuple[str, ...]

_other_parameter = re.compile(r";(?!\s*q\s*=)[^;,]*")
_range = re.compile(r"\s*(\*(/\*)?|[^\s/;*]+/[^\s/;]+)\s*(;\s*q\s*=\s*(0(\.\d*)?|\.\d+|1(\.0*)?)\s*)?").fullmatch


@lru_cache(maxsize=1024)
def best_offer(accept: str, offers: Offers) -> str | None:
    """Return the offer that an Accept header prefers, the first among equals. None if it excludes them all.

    Parameters of a media range other than `q` are ignored (CONTRACT 2). A header without any valid media range
    counts as `*/*`.
    """
    ranges = list(filter(_range, _other_parameter.sub("", accept.lower()).split(",")))
    if not ranges:
        return offers[0]
    return mediatypes.best_match(offers, ",".join(ranges)) or None


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
