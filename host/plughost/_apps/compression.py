"""Compression: responses as gzip or Zstandard, where the client reads that (RFC 9110, 8.4 and 12.5.3)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from plughost._apps.streams import Bounded, close_stream, parts_of
from plughost._runtime.optional import ZSTD, import_optional
from plughost._waiting import Pause

if TYPE_CHECKING:
    import falcon

    from plughost._settings.models import CompressionSettings, Encoding
    from plughost.http._request import Request

_COMPRESSIBLE: Final = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|javascript|openmetrics-text|wasm)|image/svg\+xml"
)
# Each encoding of a resource has an entity tag of its own, made from the plain one by this suffix.
_MARKED: Final = re.compile(r'--(?:gzip|zstd)"')


class Compression:
    """The middleware. It runs around all others but CORS and the security headers.

    A response that says `no-store` or `no-transform` is left as it is. The first is what answers with secrets say:
    compressed beside text that an attacker chose, their length would tell about them (the attack BREACH).
    """

    def __init__(self, settings: CompressionSettings) -> None:
        self._encodings = tuple(settings.encodings)
        self._minimum = int(settings.minimum_size)

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Let the resource see its own entity tags, not those of their encodings."""
        environ = req.env
        for name in ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"):
            tags = environ.get(name)
            if tags and _MARKED.search(tags):
                req.context[name] = tags
                environ[name] = _MARKED.sub('"', tags)

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Compress the body where that is worth it and the client reads it."""
        if resp.status_code == 304:  # it carries what the 200 would have carried (RFC 9110, 15.4.5)
            resp.append_header("Vary", "Accept-Encoding")
            self._mark_again(req, resp)
            return
        if not _may_be_compressed(resp):
            return
        resp.append_header("Vary", "Accept-Encoding")
        encoding = _choose(req.env.get("HTTP_ACCEPT_ENCODING", ""), self._encodings)
        if encoding is None:
            return
        data = resp.render_body()
        if data is not None:
            if len(data) < self._minimum:
                return
            resp.text = None
            resp.data = _compressed(data, encoding)
        elif resp.stream is not None:
            length = resp.get_header("Content-Length")
            stream = Bounded(resp.stream, int(length)) if length else resp.stream
            resp.stream = _Stream(stream, encoding)
            resp.delete_header("Content-Length")
        else:
            return
        resp.set_header("Content-Encoding", encoding)
        tag = resp.get_header("ETag")
        if tag and tag.startswith('"'):
            resp.set_header("ETag", _marked(tag, encoding))

    def _mark_again(self, req: Request, resp: falcon.Response) -> None:
        asked = str(req.context.get("HTTP_IF_NONE_MATCH", ""))
        tag = resp.get_header("ETag")
        if tag is None:
            return
        for encoding in self._encodings:
            if _marked(tag, encoding) in asked:
                resp.set_header("ETag", _marked(tag, encoding))
                return


def _compressed(data: bytes, encoding: Encoding) -> bytes:
    if encoding == "zstd":
        return bytes(zstd().compress(data, 3))
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


class _Stream:
    """A response's stream, compressed part by part as it is made: what is sent for a part is enough to read it."""

    def __init__(self, source: Any, encoding: Encoding) -> None:
        self._source = source
        self._compressor: Any
        if encoding == "gzip":
            self._compressor, self._end_part = zlib.compressobj(6, zlib.DEFLATED, 31), zlib.Z_SYNC_FLUSH
        else:
            self._compressor = zstd().ZstdCompressor(level=3)
            self._end_part = self._compressor.FLUSH_BLOCK

    def __iter__(self) -> Iterator[bytes]:
        for part in parts_of(self._source):
            if part:
                yield self._compressor.compress(part) + self._compressor.flush(self._end_part)
            elif type(part) is Pause:
                yield part
        yield self._compressor.flush()

    def close(self) -> None:
        close_stream(self._source)


def _may_be_compressed(resp: falcon.Response) -> bool:
    """Whether a response is of a kind that is worth it, and may be changed on its way."""
    headers = resp.headers
    media_type = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    control = headers.get("cache-control", "").lower()
    return (
        resp.status_code not in (204, 206)
        and "content-encoding" not in headers
        and "content-range" not in headers
        and "no-store" not in control
        and "no-transform" not in control
        and _COMPRESSIBLE.fullmatch(media_type) is not None
    )


@lru_cache(maxsize=256)
def _choose(accept: str, encodings: tuple[Encoding, ...]) -> Encoding | None:
    """Return the encoding that an Accept-Encoding likes best, the earlier among equals. None for none."""
    qualities: dict[str, float] = {}
    for part in accept.lower().split(","):
        name, _, parameter = (each.strip() for each in part.partition(";"))
        key, _, value = (each.strip() for each in parameter.partition("="))
        try:
            qualities[name] = float(value) if key == "q" else 1.0
        except ValueError:
            qualities[name] = 0.0
    default = qualities.get("*", 0.0)
    best: Encoding = max(encodings, key=lambda encoding: qualities.get(encoding, default))
    return best if qualities.get(best, default) > 0 else None


def _marked(tag: str, encoding: Encoding) -> str:
    return f'{tag[:-1]}--{encoding}"'


def zstd() -> Any:
    """Return the module for Zstandard."""
    return import_optional(ZSTD, extra="compression")
