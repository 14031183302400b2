"""Waitress refuses invalid chunked bodies before it interprets any of their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from waitress.buffers import OverflowableBuffer

from plughost._servers.waitress_messages import StrictChunkedReceiver

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from tests.engines.conftest import Exchange, Gate, Serve

HEAD = b"POST /held HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
NOTHING = b"0\r\n\r\n"
ENDLESS = b"x" * 10_000
BROKEN = {
    "size that ends with LF": b"3\n",
    "second size that ends with LF": b"1\r\na\r\n3\n",
    "size that ends with LF CR LF": b"3\n\r\nabc\r\n" + NOTHING,
    "size that ends with CR": b"3\rX",
    "size that ends with CR CR LF": b"3\r\r\nabc\r\n" + NOTHING,
    "space before the size": b" 3\r\nabc\r\n" + NOTHING,
    "tab after the size": b"3\t\r\nabc\r\n" + NOTHING,
    "size with 0x": b"0x3",
    "negative size": b"-3",
    "signed size": b"+3",
    "size with an underscore": b"1_0",
    "no size": b"\r\n3\r\nabc\r\n" + NOTHING,
    "size of 17 digits": b"0" * 16 + b"3",
    "endless size": b"0" * 10_000,
    "extension that ends with LF": b"3;a\n",
    "extension that ends with LF CR LF": b"3;a\n\r\nabc\r\n" + NOTHING,
    "extension with CR": b"3;a\rb\r\nabc\r\n" + NOTHING,
    "extension with NUL": b"3;\0",
    "quote that doesn't end": b'3;a="\r\nabc\r\n' + NOTHING,
    "endless extension": b"3;a=" + ENDLESS,
    "endless quote": b'3;a="' + ENDLESS,
    "chunk that is too long": b"3\r\nabcd\r\n" + NOTHING,
    "chunk that ends with LF": b"3\r\nabc\n",
    "chunk that ends with CR": b"3\r\nabc\r0\r\n\r\n",
    "last chunk that ends with LF": b"0\n",
    "last chunk that ends with LF CR LF": b"0\n\r\n",
    "trailers that end with LF": b"0\r\n\n",
    "trailers that end with CR": b"0\r\n\rX",
    "trailer that ends with LF": b"0\r\nX: 1\n",
    "trailer that ends with CR": b"0\r\nX: 1\rY: 2\r\n\r\n",
    "trailer that is folded": b"0\r\nX: 1\r\n 2\r\n\r\n",
    "trailer without a colon": b"0\r\nGET /held HTTP/1.1\r\nHost: h\r\n\r\n",
    "endless trailer": b"0\r\nX: " + ENDLESS,
    "endless trailers": b"0\r\n" + b"X: 1\r\n" * 2000,
}


@pytest.mark.parametrize("following", [b"", b"\r\nGET /held HTTP/1.1\r\nHost: h\r\n\r\n"], ids=["alone", "followed"])
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_an_invalid_chunked_body_is_400_at_once(
    serve: Serve, gate: Gate, exchange: Exchange, body: bytes, following: bytes
) -> None:
    """The connection ends, and the following bytes are not parsed as a request (RFC 9112 2.2, 7.1)."""
    with serve(gate).connect() as connection:
        response, _ = exchange(connection, HEAD + body + following)
        assert (response.status, connection.recv(1)) == (400, b"")
    assert not gate.entered.acquire(blocking=False)


@pytest.mark.parametrize("size", [b"fffffffffffffff", b"ffffffffffffffff", b"2711"])
def test_a_chunk_above_the_limit_is_413_before_it_is_sent(
    serve: Serve, counting_app: WSGIApplication, exchange: Exchange, size: bytes
) -> None:
    """This is the same as for a Content-Length above the limit."""
    with serve(counting_app, body_limit=10_000).connect() as connection:
        response, body = exchange(connection, HEAD + size + b"\r\n")
        assert (response.status, body) == (413, b"0 of %d" % int(size, 16))
        assert connection.recv(1) == b""


def test_a_chunked_body_is_read_wherever_it_is_split() -> None:
    """It may have extensions, padded sizes and trailers; the next request stays unread."""
    sent = b'3;a=b;c="d\\"e;f"\r\na\r\n\r\n000000000000000A\r\n0123456789\r\n0\r\nX: 1\r\nY:\r\n\r\n'
    for cut in range(len(sent)):
        body = StrictChunkedReceiver(OverflowableBuffer(1000))
        taken = [body.received(each) for each in (sent[:cut], sent[cut:] + b"GET /") if each]
        assert (body.completed, sum(taken)) == (True, len(sent))
        assert body.getfile().read() == b"a\r\n0123456789"
