"""JSON bodies: of requests, arrays of any length, and Falcon's `req.media` and `resp.media`."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import falcon
import falcon.media

from plughost.http._json.codec import decode, encode
from plughost.http._json.validation import ModelT, validate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from falcon.typing import ReadableIO

DEFAULT_BODY_LIMIT: Final = 1024 * 1024
"""Bytes; the limit for a request without a mounted route (CONTRACT 2)."""


def read_body(req: falcon.Request, model: type[ModelT]) -> ModelT:
    """Return the model made from a request's JSON body.

    Raises:
        Invalid: The body breaks the model's rules.
        falcon.HTTPError: As `read_json`.
    """
    return validate(model, read_json(req))


def read_json(req: falcon.Request) -> Any:
    """Return the value of a request's JSON body. Without a Content-Type, the body counts as JSON (CONTRACT 2).

    Raises:
        falcon.HTTPUnsupportedMediaType: The Content-Type isn't JSON, or the body is compressed.
        falcon.HTTPContentTooLarge: The body exceeds the default limit, and the request has no mounted route. The host
            checks the limits of mounted routes before it calls a resource.
        MalformedJSON: The body isn't JSON.
    """
    content_type = req.content_type
    if content_type is not None and content_type != "application/json" and not _is_json(content_type):
        raise falcon.HTTPUnsupportedMediaType(
            description="This resource reads application/json in UTF-8.", headers={"Accept": "application/json"}
        )
    coding = req.env.get("HTTP_CONTENT_ENCODING")
    if coding and coding.strip().lower() not in ("", "identity"):
        raise falcon.HTTPUnsupportedMediaType(
            description="This resource reads no compressed bodies.", headers={"Accept-Encoding": "identity"}
        )
    if getattr(req, "mounted", None) is None and (req.content_length or 0) > DEFAULT_BODY_LIMIT:
        raise falcon.HTTPContentTooLarge(
            description=f"The request body is larger than the {DEFAULT_BODY_LIMIT} bytes accepted here."
        )
    # Not `bounded_stream`: an engine's stream ends with the body, and the wrapper costs a microsecond.
    return decode(req.stream.read())


def _is_json(content_type: str) -> bool:
    """Return whether a Content-Type is JSON: `application/json` or a `+json` type (RFC 6839), in UTF-8."""
    media_type, parameters = falcon.parse_header(content_type)
    main, _, sub = media_type.strip().lower().partition("/")
    charset = parameters.get("charset", "utf-8").lower()
    return main == "application" and (sub == "json" or sub.endswith("+json")) and charset in ("utf-8", "utf8")


def send_array(resp: falcon.Response, batches: Iterable[Sequence[object]]) -> None:
    """Respond with a JSON array. Call this last in a responder.

    A single batch is sent with its Content-Length; several are streamed. The first two batches are fetched at once, so
    that their errors become ordinary error responses. A later error cuts the response off, and the client sees that
    it is incomplete.

    Args:
        resp: The response.
        batches: The items in order, such as from `OpenStore.batches`: anything that `encode` accepts.
    """
    remaining = iter(batches)
    first = next(remaining, ())
    second = next(remaining, None)
    if second is None:
        resp.data = encode(first)
    else:
        resp.stream = _parts(chain((first, second), remaining))


def _parts(batches: Iterable[Sequence[object]]) -> Iterator[bytes]:
    separator = b"["
    for batch in batches:
        if batch:
            yield separator + encode(batch)[1:-1]
            separator = b","
    yield b"]" if separator == b"," else b"[]"


class JSONHandler(falcon.media.BaseHandler):
    """Falcon's media handler for JSON: `req.media` through `decode`, `resp.media` through `encode`."""

    def serialize(self, media: object, content_type: str) -> bytes:
        return encode(media)

    def deserialize(self, stream: ReadableIO, content_type: str | None, content_length: int | None) -> object:
        """Return the value of a request's body.

        Raises:
            falcon.MediaNotFoundError: There is no body.
            falcon.HTTPContentTooLarge: The body exceeds the limit, so the engine passed on nothing of it.
            MalformedJSON: The body isn't JSON.
        """
        raw = stream.read()
        if raw:
            return decode(raw)
        if content_length:
            raise falcon.HTTPContentTooLarge(description="The request body is larger than accepted here.")
        raise falcon.MediaNotFoundError("JSON")
