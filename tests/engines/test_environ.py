"""An application sees the same request, whatever the engine and protocol."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
import urllib.parse
import weakref
import wsgiref.validate
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication

    from tests.engines.conftest import Environ, Exchange, Gate, Serve, WaitUntil
    from tests.lanes import Lane


def test_the_environ_names_the_request(serve: Serve, lane: Lane, environ_app: WSGIApplication) -> None:
    """Method, path, query, host, scheme, protocol and peer are those of the request."""
    served = serve(environ_app, lane)
    seen = served.client().get("/a/b?x=1&y=%20").json()
    assert (seen["REQUEST_METHOD"], seen["SCRIPT_NAME"], seen["PATH_INFO"]) == ("GET", "", "/a/b")
    assert (seen["QUERY_STRING"], seen["REQUEST_URI"]) == ("x=1&y=%20", "/a/b?x=1&y=%20")
    assert seen["HTTP_HOST"] == f"127.0.0.1:{served.engine.port}"
    assert (seen["SERVER_NAME"], seen["SERVER_PORT"]) == ("127.0.0.1", str(served.engine.port))
    assert (seen["wsgi.url_scheme"], seen["REMOTE_ADDR"]) == (lane.scheme, "127.0.0.1")
    assert seen["REMOTE_PORT"].isdigit()
    assert seen["SERVER_PROTOCOL"] == ("HTTP/2" if lane.http2 else "HTTP/1.1")


def test_a_method_keeps_its_case(
    serve: Serve, http1_lane: Lane, environ_app: WSGIApplication, exchange: Exchange
) -> None:
    """`post` is not `POST` (RFC 9110, 9.1): no resource has it, and the application says so."""
    with serve(environ_app, http1_lane).connect() as connection:
        _, body = exchange(connection, b"post / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")
    assert json.loads(body)["REQUEST_METHOD"] == "post"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
def test_the_engine_conforms_to_pep_3333(serve: Serve, lane: Lane, environ_app: WSGIApplication, method: str) -> None:
    """The standard library's validator has no objections."""

    def bodiless_to_head(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        body = list(environ_app(environ, start_response))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else body

    client = serve(wsgiref.validate.validator(bodiless_to_head), lane).client()
    content = b"abc" if method in {"POST", "PUT"} else None
    answer = client.request(method, "/x?y", content=content, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 200, answer.text
    assert client.get("/again").status_code == 200


def test_an_escaped_slash_differs_from_a_literal_one(serve: Serve, lane: Lane, environ_app: WSGIApplication) -> None:
    """REQUEST_URI is the raw target; PATH_INFO has the decoded bytes as latin-1."""
    seen = serve(environ_app, lane).client().get("/a%2Fb/%C3%A9%20/c").json()
    assert seen["REQUEST_URI"] == "/a%2Fb/%C3%A9%20/c"
    assert seen["PATH_INFO"] == "/a/b/\xc3\xa9 /c"


@pytest.mark.parametrize("path", ["//a//b", "/a/", "/a/%2E%2E/b", "/%00", "/%FF%FE", "/a;b=c:d@e", "/%3F%23"])
def test_unusual_paths_arrive_unchanged(
    serve: Serve, http1_lane: Lane, environ_app: WSGIApplication, exchange: Exchange, path: str
) -> None:
    """Nothing is collapsed, resolved or re-encoded."""
    with serve(environ_app, http1_lane).connect() as connection:
        response, body = exchange(connection, f"GET {path}?q HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert response.status == 200
    seen = json.loads(body)
    assert seen["REQUEST_URI"] == f"{path}?q"
    assert seen["PATH_INFO"] == urllib.parse.unquote_to_bytes(path).decode("latin-1")


def test_an_absolute_target_is_seen_as_path_and_query(
    serve: Serve, http1_lane: Lane, environ_app: WSGIApplication, exchange: Exchange
) -> None:
    """The authority of an absolute-form target (RFC 9112 3.2.2) is not part of REQUEST_URI."""
    with serve(environ_app, http1_lane).connect() as connection:
        _, body = exchange(connection, b"GET http://h/p%2Fq?r HTTP/1.1\r\nHost: h\r\n\r\n")
    assert b'"REQUEST_URI": "/p%2Fq?r"' in body
    assert b'"PATH_INFO": "/p/q"' in body


@pytest.mark.parametrize("target", ["/a?", "/a?#b", "http://h/a?"])
def test_an_empty_query_is_none(
    serve: Serve, http1_lane: Lane, environ_app: WSGIApplication, exchange: Exchange, target: str
) -> None:
    """All engines drop its question mark, so a request that is repeated on another listener is still the same."""
    with serve(environ_app, http1_lane).connect() as connection:
        _, body = exchange(connection, f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    seen = json.loads(body)
    assert (seen["REQUEST_URI"], seen["PATH_INFO"], seen["QUERY_STRING"]) == ("/a", "/a", "")


def test_the_authority_of_an_absolute_target_replaces_the_host(
    serve: Serve, environ_app: WSGIApplication, exchange: Exchange
) -> None:
    """It wins over Host (RFC 9112 3.2.2), so that the host agrees with a proxy that uses the target; on waitress."""
    with serve(environ_app).connect() as connection:
        _, body = exchange(connection, b"GET http://named:81?r HTTP/1.1\r\nHost: other\r\n\r\n")
    assert json.loads(body)["HTTP_HOST"] == "named:81"
    assert json.loads(body)["REQUEST_URI"] == "/?r"


def test_repeated_headers_are_joined(serve: Serve, lane: Lane, environ_app: WSGIApplication) -> None:
    """Repeated fields are one list (RFC 9110 5.3); cookies are joined as cookies (RFC 6265 5.4)."""
    headers = [("X-Many", "1"), ("X-Many", "2"), ("Cookie", "a=1"), ("Cookie", "b=2")]
    seen = serve(environ_app, lane).client().get("/", headers=headers).json()
    assert seen["HTTP_X_MANY"] == "1, 2"
    assert seen["HTTP_COOKIE"] == "a=1; b=2"


def test_a_header_with_underscores_cannot_pose_as_another(
    serve: Serve, lane: Lane, environ_app: WSGIApplication
) -> None:
    """`X_Forwarded_For` is not mistaken for `X-Forwarded-For`."""
    headers = {"X_Forwarded_For": "evil", "X-Other": "kept"}
    seen = serve(environ_app, lane).client().get("/", headers=headers).json()
    assert "HTTP_X_FORWARDED_FOR" not in seen
    assert seen["HTTP_X_OTHER"] == "kept"


def test_names_of_clients_are_not_kept(serve: Serve, https_lane: Lane, gate: Gate) -> None:
    """However long the header names are that hostile clients send, they take a few MiB at most."""
    client = serve(gate, https_lane).client()
    client.get("/")
    tracemalloc.start()
    try:
        for number in range(200):
            client.get("/", headers={f"X-{number}-" + "x" * 30_000: "1"})
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 6 * 2**20


def test_content_type_and_length_have_no_prefix(serve: Serve, lane: Lane, environ_app: WSGIApplication) -> None:
    """CONTENT_TYPE and CONTENT_LENGTH have their CGI names."""
    answer = serve(environ_app, lane).client().post("/", content=b"{}", headers={"Content-Type": "application/json"})
    seen = answer.json()
    assert (seen["CONTENT_TYPE"], seen["CONTENT_LENGTH"], seen["body"]) == ("application/json", "2", "{}")
    assert "HTTP_CONTENT_TYPE" not in seen


def test_an_http_1_0_request_needs_no_host(
    serve: Serve, http1_lane: Lane, environ_app: WSGIApplication, exchange: Exchange
) -> None:
    """HTTP/1.0 is answered, and the connection is closed."""
    with serve(environ_app, http1_lane).connect() as connection:
        response, body = exchange(connection, b"GET /old HTTP/1.0\r\n\r\n")
        assert response.status == 200
        assert b'"SERVER_PROTOCOL": "HTTP/1.0"' in body
        assert connection.recv(1) == b""


class HeldObject:
    """An object that an application puts into the environ, as a host does with the app that answers."""


@pytest.mark.parametrize("in_pool", [False, True], ids=["in turn", "in pool"])
def test_an_answered_request_is_freed(
    serve: Serve, lane: Lane, gate: Gate, wait_until: WaitUntil, in_pool: bool
) -> None:
    """Threads that are parked after slow requests keep no reference, so that replaced plugins are freed."""
    held = weakref.WeakSet[HeldObject]()

    def holding(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        mine = environ["held"] = HeldObject()
        held.add(mine)
        return gate(environ, start_response)

    served = serve(holding, lane, blocking_plugins={"": ()} if in_pool else {})

    def ask() -> None:
        assert served.client().get("/held").status_code == 200

    asking = [threading.Thread(target=ask) for _ in range(4)]
    with ExitStack() as stack:
        for each in asking:
            each.start()
            stack.callback(each.join)
        stack.callback(gate.opened.set)
        gate.wait_until_entered(len(asking))
        assert len(held) == len(asking)
    wait_until(lambda: gc.collect() is not None and not held)
