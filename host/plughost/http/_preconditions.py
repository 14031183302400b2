"""Conditional requests by entity tags (RFC 9110, 8.8.3 and 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import falcon

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_preconditions(req: falcon.Request, *etags: str) -> bool:
    """Return whether the client of a GET has the current state, so that 304 suffices (RFC 9110, 13.2.2).

    Args:
        req: The request.
        *etags: The current entity tags, without quotes: of a GET, the one of the representation to send; of a change,
            those of all representations. None if the resource does not exist.

    Raises:
        falcon.HTTPPreconditionFailed: No tag of `If-Match` is current, or a change's `If-None-Match` has a current one.
        ValueError: A tag has quotes, as `resp.etag` returns it.
    """
    for etag in etags:
        if '"' in etag:
            raise ValueError(f"pass the entity tag {etag} without quotes: it would match nothing")
    if req.get_header("If-Match") is not None and not _matches(req.if_match or (), etags, strong=True):
        raise falcon.HTTPPreconditionFailed(description="If-Match: no tag is current.")
    if not _matches(req.if_none_match or (), etags):
        return False
    if req.method not in ("GET", "HEAD"):
        raise falcon.HTTPPreconditionFailed(description="If-None-Match: a tag is current.")
    return True


def _matches(sent: Sequence[falcon.ETag | str], etags: Sequence[str], *, strong: bool = False) -> bool:
    """Return whether a sent tag is current. Falcon has `*` as a plain string, and the tag `"*"` as an ETag."""
    return any(
        each and each in etags and not (strong and each.is_weak) if isinstance(each, falcon.ETag) else bool(etags)
        for each in sent
    )
