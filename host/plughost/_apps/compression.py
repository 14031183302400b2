"""Compression: responses as gzip or Zstandard for clients that accept it (RFC 9110, 8.4 and 12.5.3)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from plughost._optional import ZSTD, import_optional
from plughost._waiting import Pause
from plughost.http._response import CLIENT_CACHE_SIZE, WrappedStream, bounded_parts, stream_parts

if TYPE_CHECKING:
    import falcon

    from plughost._settings.models import CompressionSettings, Encoding
    from plughost.http._request import Request

_COMPRESSIBLE_TYPES: Final = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|javascript|openmetrics-text|wasm)|image/svg\+xml"
)
# Each encoding of a resource has its own entity tag: the plain one with this suffix.
_TAG_SUFFIX: Final = re.compile(r'--(?:gzip|zstd)"')


class Compression:
    """The compressing middleware. Only CORS and the security headers run outside it.

    Responses with `no-store` or `no-transform` stay uncompressed. `no-store` marks responses with secrets: compressed
    together with text that an attacker chose, their length would reveal the secrets (the attack BREACH).
    """

    def __init__(self, settings: CompressionSettings) -> None:
        self._encodings = tuple(settings.encodings)
        self._minimum_size = int(settings.minimum_size)

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Replace the entity tags of encodings by the plain ones, which the resource knows."""
        environ = req.env
        for name in ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"):
            tags = environ.get(name)
            if tags and _TAG_SUFFIX.search(tags):
                req.context[name] = tags
                environ[name] = _TAG_SUFFIX.sub('"', tags)

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        if resp.status_code == 304:  # its headers are those of the 200 (RFC 9110, 15.4.5)
            resp.append_header("Vary", "Accept-Encoding")
            self._restore_tag(req, resp)
            return
        if not _is_compressible(resp):
            return
        resp.append_header("Vary", "Accept-Encoding")
        if "content-range" in resp.headers:  # a part, which is one of the plain encoding
            return
        encoding = _choose_encoding(req.env.get("HTTP_ACCEPT_ENCODING", ""), self._encodings)
        if encoding is None:
            return
        data = resp.render_body()
        length = resp.get_header("Content-Length") if data is None else len(data)
        if length is not None and int(length) < self._minimum_size:
            return
        if data is not None:
            resp.text = None
            resp.data = _compress(data, encoding)
        elif resp.stream is not None:
            # Middleware may have replaced the stream, and the edge no longer finds its Content-Length.
            parts = bounded_parts(resp.stream, int(length)) if length else resp.stream
            resp.stream = WrappedStream(resp.stream, _compressed_parts(parts, encoding))
            resp.delete_header("Content-Length")
        else:
            return
        resp.set_header("Content-Encoding", encoding)
        tag = resp.get_header("ETag")
        if tag and tag.startswith('"'):
            resp.set_header("ETag", _encoded_tag(tag, encoding))

    def _restore_tag(self, req: Request, resp: falcon.Response) -> None:
        requested = str(req.context.get("HTTP_IF_NONE_MATCH", ""))
        tag = resp.get_header("ETag")
        if tag is None:
            return
        for encoding in self._encodings:
            if _encoded_tag(tag, encoding) in requested:
                resp.set_header("ETag", _encoded_tag(tag, encoding))
                return


def _compress(data: bytes, encoding: Encoding) -> bytes:
    return zlib.compress(data, 6, 31) if encoding == "gzip" else bytes(zstd().compress(data, 3))


def _compressed_parts(stream: Any, encoding: Encoding) -> Iterator[bytes]:
    """Compress a stream part by part. Clients can decompress each part as soon as it arrives."""
    compressor: Any
    if encoding == "gzip":
        compressor, end_part = zlib.compressobj(6, zlib.DEFLATED, 31), zlib.Z_SYNC_FLUSH
    else:
        compressor = zstd().ZstdCompressor(level=3)
        end_part = compressor.FLUSH_BLOCK
    for part in stream_parts(stream):
        if part:
            yield compressor.compress(part) + compressor.flush(end_part)
        elif type(part) is Pause:
            yield part
    yield compressor.flush()


def _is_compressible(resp: falcon.Response) -> bool:
    headers = resp.headers
    media_type = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    control = headers.get("cache-control", "").lower()
    return (
        resp.status_code != 204
        and "content-encoding" not in headers
        and "no-store" not in control
        and "no-transform" not in control
        and _COMPRESSIBLE_TYPES.fullmatch(media_type) is not None
    )


@lru_cache(maxsize=CLIENT_CACHE_SIZE)
def _choose_encoding(accept: str, encodings: tuple[Encoding, ...]) -> Encoding | None:
    """Return the encoding that an Accept-Encoding prefers, the earlier among equals. None for a plain body."""
    qualities: dict[str, float] = {}
    for part in accept.lower().split(","):
        name, _, weight = part.partition(";")
        try:
            qualities[name.strip()] = float(weight.partition("=")[2] or 1)
        except ValueError:
            qualities[name.strip()] = 0.0
    default = qualities.get("*", 0.0)
    best: Encoding = max(encodings, key=lambda encoding: qualities.get(encoding, default))
    quality = qualities.get(best, default)
    return best if quality > 0 and quality >= qualities.get("identity", 0.0) else None


def _encoded_tag(tag: str, encoding: Encoding) -> str:
    return f'{tag[:-1]}--{encoding}"'


def zstd() -> Any:
    """Return the module for Zstandard; `LibraryError` if it can't be used."""
    return import_optional(ZSTD, extra="compression")
