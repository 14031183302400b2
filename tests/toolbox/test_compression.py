"""Compression: only for clients that accept it, and only of bodies that are worth it and may be changed."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import falcon
import pytest

from plughost._apps.compression import _choose_encoding, _compressed_parts, zstd
from plughost._optional import ZSTD, LibraryError, import_optional
from plughost._runtime.generation import GenerationRefused
from plughost.http._response import WrappedStream

from .conftest import NotesPlugin, notes_host

if TYPE_CHECKING:
    import httpx

    from plughost._settings.models import Encoding
    from plughost.http import Request

BOTH = ["zstd", "gzip"]


def has_zstd() -> bool:
    """Tell whether Zstandard can be tested here."""
    try:
        import_optional(ZSTD, extra="compression")
    except LibraryError:
        return False
    return True


needs_zstd = pytest.mark.skipif(not has_zstd(), reason="zstd is not tested: plughost[compression] is not installed")


class Responder:
    """A resource that calls the test's function."""

    def __init__(self, respond: Callable[[Request, falcon.Response], None]) -> None:
        """Store the test's function."""
        self._respond = respond

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer."""
        self._respond(req, resp)


@contextmanager
def client_of(
    respond: Callable[[Request, falcon.Response], None] | None = None,
    encodings: list[str] | None = None,
    scheme: str = "http",
    **compression: Any,
) -> Iterator[httpx.Client]:
    """Return a client of a host that compresses, which asks for no encoding by itself."""
    sites = {"main": {"compression": {"encodings": ["gzip"] if encodings is None else encodings, **compression}}}
    plugin = NotesPlugin(None, resource=Responder(respond) if respond else None)
    with notes_host(plugin, sites=sites) as host, host.client(scheme=scheme, http2=True) as client:
        client.headers["Accept-Encoding"] = "identity"
        yield client


def get(client: httpx.Client, accept: str, path: str = "/notes?size=5000", **headers: str) -> tuple[Any, bytes]:
    """Send a GET; return the answer and its body as it was on the wire."""
    with client.stream("GET", path, headers={"Accept-Encoding": accept, **headers}) as answer:
        return answer, b"".join(answer.iter_raw())


def test_by_default_nothing_is_compressed() -> None:
    """The setting is off by default."""
    with client_of(encodings=[]) as client:
        answer, _ = get(client, "gzip, zstd")
        assert "Content-Encoding" not in answer.headers
        assert "Accept-Encoding" not in answer.headers["Vary"]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_body_is_gzipped_for_who_reads_it(scheme: str) -> None:
    """It decompresses to the same JSON, `Vary` tells caches, and other clients get the plain body."""
    with client_of(scheme=scheme) as client:
        plain, body = get(client, "identity")
        answer, compressed = get(client, "gzip")
        assert (answer.headers["Content-Encoding"], answer.headers["Content-Type"]) == ("gzip", "application/json")
        assert gzip.decompress(compressed) == body
        assert int(answer.headers["Content-Length"]) == len(compressed) < len(body)
        assert "Content-Encoding" not in plain.headers
        assert "Accept-Encoding" in plain.headers["Vary"]
        assert "Accept-Encoding" in answer.headers["Vary"]


@needs_zstd
def test_zstd_is_served_where_the_settings_prefer_it() -> None:
    """A client that accepts both gets the preferred encoding."""
    with client_of(encodings=BOTH) as client:
        _, body = get(client, "identity")
        answer, compressed = get(client, "gzip, zstd")
        assert answer.headers["Content-Encoding"] == "zstd"
        assert zstd().decompress(compressed) == body
        assert get(client, "gzip")[0].headers["Content-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("GZIP;Q=0.5", "gzip"),
        ("gzip, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("*", "zstd"),
        ("*;q=0", None),
        ("zstd;q=0, *", "gzip"),
        ("gzip;q=0", None),
        ("gzip;q=broken", None),
        ("br, deflate", None),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip;q=0.5", "gzip"),
        ("gzip; q=0.5, identity ;q=0", "gzip"),
    ],
)
def test_accept_encoding_decides(accept: str, chosen: str | None) -> None:
    """Qualities and the star count as RFC 9110 has them."""
    assert _choose_encoding(accept, ("zstd", "gzip")) == chosen


def test_errors_are_compressed_as_well_and_short_bodies_are_not() -> None:
    """The size decides, not the status."""
    with client_of() as client:
        assert "Content-Encoding" not in get(client, "gzip", "/notes?size=10")[0].headers
    with client_of(minimum_size=10) as client:
        answer, body = get(client, "gzip", "/notes/nothing")
        assert (answer.status_code, answer.headers["Content-Encoding"]) == (404, "gzip")
        assert b"nothing at" in gzip.decompress(body)


def test_a_short_file_is_sent_as_it_is() -> None:
    """The size decides for a stream with a `Content-Length`, too: gzip would make a short one longer."""

    def respond(req: Request, resp: falcon.Response) -> None:
        resp.content_type = "text/plain"
        size = req.get_param_as_int("size", required=True)
        resp.set_stream(io.BytesIO(b"x" * size), size)

    with client_of(respond) as client:
        assert "Content-Encoding" not in get(client, "gzip", "/notes?size=1023")[0].headers
        assert get(client, "gzip", "/notes?size=1024")[0].headers["Content-Encoding"] == "gzip"


def test_head_is_get_without_the_body() -> None:
    """HEAD has the encoding and the length of GET."""
    with client_of() as client:
        answer, body = get(client, "gzip")
        head = client.head("/notes?size=5000", headers={"Accept-Encoding": "gzip"})
        assert head.content == b""
        for name in ("Content-Encoding", "Content-Length", "Vary"):
            assert head.headers[name] == answer.headers[name]
        assert len(body) == int(head.headers["Content-Length"])


@pytest.mark.parametrize("encoding", ["gzip", pytest.param("zstd", marks=needs_zstd)])
def test_a_stream_keeps_flowing(encoding: Encoding) -> None:
    """Each part can be decompressed as soon as it is sent; the source is closed at the end."""
    parts = [b"first " * 100, b"", b"second " * 100, b"third " * 100]
    source = Source(parts)
    stream = WrappedStream(source, _compressed_parts(source, encoding))
    decompressor = zlib.decompressobj(31) if encoding == "gzip" else zstd().ZstdDecompressor()
    read = [decompressor.decompress(sent) for sent in stream]
    assert read == [*(part for part in parts if part), b""]
    assert decompressor.eof
    stream.close()
    assert source.closed


class Source(io.BytesIO):
    """A stream of parts, which records whether it was closed."""

    read = None  # type: ignore[assignment] # so that it is a stream of parts, not a file

    def __init__(self, parts: list[bytes]) -> None:
        """Store the parts."""
        super().__init__()
        self._parts = parts

    def __iter__(self) -> Any:
        return iter(self._parts)


@pytest.mark.parametrize("as_file", [True, False])
def test_a_streamed_body_arrives_complete(as_file: bool) -> None:
    """A generator's and a file's content are unchanged, without the length of the plain body."""
    content = b"a line of text\n" * 20_000

    def respond(req: Request, resp: falcon.Response) -> None:
        resp.content_type = "text/csv"
        if as_file:
            resp.set_stream(io.BytesIO(content), len(content))
        else:
            resp.stream = (content[start : start + 1000] for start in range(0, len(content), 1000))

    with client_of(respond) as client:
        answer, body = get(client, "gzip", "/notes")
        assert answer.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(body) == content
        assert get(client, "identity", "/notes")[1] == content


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Encoding": "br"},
        {"Content-Type": "image/png"},
        {"Cache-Control": "no-store"},
        {"Cache-Control": "public, no-transform"},
        {"Content-Range": "bytes 0-9/10"},
    ],
    ids=str,
)
def test_encoded_secret_or_unchangeable_bodies_are_left_alone(headers: dict[str, str]) -> None:
    """Pictures, answers with secrets, ranges and compressed bodies are sent unchanged."""

    def respond(req: Request, resp: falcon.Response) -> None:
        resp.data = b"x" * 5000
        for name, value in headers.items():
            resp.set_header(name, value)

    with client_of(respond) as client:
        answer, body = get(client, "gzip", "/notes")
        assert body == b"x" * 5000
        assert answer.headers.get("Content-Encoding") == headers.get("Content-Encoding")
        # A range has the Vary of the whole (RFC 9110, 15.3.7).
        assert ("Accept-Encoding" in answer.headers["Vary"]) == ("Content-Range" in headers)


def test_each_encoding_has_an_entity_tag_that_works_in_conditions() -> None:
    """A compressed answer has its own tag; a condition with it matches, and a 304 repeats it."""

    def respond(req: Request, resp: falcon.Response) -> None:
        resp.etag = "v1"
        if req.if_none_match and any(tag == "v1" for tag in req.if_none_match):
            resp.status = falcon.HTTP_304
            return
        resp.media = {"if_match": [str(tag) for tag in req.if_match or ()], "filling": "x" * 5000}

    with client_of(respond) as client:
        plain, _ = get(client, "identity", "/notes")
        compressed, _ = get(client, "gzip", "/notes")
        assert (plain.headers["ETag"], compressed.headers["ETag"]) == ('"v1"', '"v1--gzip"')
        for tag in ('"v1"', '"v1--gzip"', '"v0", "v1--gzip"'):
            again, body = get(client, "gzip", "/notes", **{"If-None-Match": tag})
            assert (again.status_code, body) == (304, b"")
            assert again.headers["ETag"] in tag
            assert "Accept-Encoding" in again.headers["Vary"]
        matched, _ = get(client, "identity", "/notes", **{"If-Match": '"v1--gzip"'})
        assert matched.status_code == 200
        _, body = get(client, "identity", "/notes", **{"If-Match": '"v1--gzip"'})
        assert body.startswith(b'{"if_match":["v1"]')


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zstandard needs the extra below Python 3.14, and the error names it."""
    monkeypatch.setitem(sys.modules, ZSTD, None)
    with pytest.raises(GenerationRefused, match=r"plughost\[compression\]"), client_of(encodings=["zstd"]):
        pass
