"""JSON arrays of any length: made while they are sent, in as much memory as a batch of them takes."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from plughost.http._json.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import falcon


def send_array(resp: falcon.Response, batches: Iterable[Sequence[object]]) -> None:
    """Answer with a JSON array. Call this last in a responder.

    What fits in one batch is sent with its Content-Length, the rest streams. The first two batches are fetched at
    once, so that their errors are answered as any other. A later one cuts the response short, and the client sees
    that it is incomplete.

    Args:
        resp: The response.
        batches: The items in their order, such as from `OpenStore.batches`. Anything that `encode` knows.
    """
    remaining = iter(batches)
    first = next(remaining, ())
    second = next(remaining, None)
    if second is None:
        resp.data = encode(first)
    else:
        resp.stream = _parts(chain((first, second), remaining))


def _parts(batches: Iterable[Sequence[object]]) -> Iterator[bytes]:
    before = b"["
    for batch in batches:
        if batch:
            yield before + encode(batch)[1:-1]
            before = b","
    yield b"]" if before == b"," else b"[]"
