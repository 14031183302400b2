"""Every answer below `/users/` is in the envelope, over each listener (CONTRACT 2 and 7)."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from plughost_profile_template.store import Profiles

from .conftest import PATH, error, profile_host


@pytest.mark.parametrize("body", [b"null", b"[]", b"5", b'"text"'])
def test_json_that_is_no_object_is_422(client: httpx.Client, body: bytes) -> None:
    """A well-formed body of another type violates a rule for the whole body."""
    envelope = error(client.put(PATH, content=body), 422)
    assert envelope["errors"] == [{"field": "", "message": "must be an object"}]


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", PATH, {"headers": {"API-Version": "2.0"}}, 400),
        ("GET", PATH, {"headers": {"API-Version": "new"}}, 400),
        ("PUT", PATH, {"content": b"{"}, 400),
        ("GET", "/users", {}, 404),
        ("GET", "/users/", {}, 404),
        ("GET", "/users/nobody", {}, 404),
        ("PUT", f"{PATH}/settings", {"content": b"{}"}, 404),
        ("GET", "/users/%FF%ED%A0%80", {}, 404),
        ("POST", PATH, {"content": b"{}"}, 405),
        ("DELETE", PATH, {}, 405),
        ("PATCH", PATH, {"content": b"{}"}, 405),
        ("GET", PATH, {"headers": {"Accept": "text/html"}}, 406),
        ("PUT", PATH, {"content": b'{"displayName": "' + b"x" * 1024 * 1024 + b'"}'}, 413),
        ("PUT", PATH, {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
        ("PUT", PATH, {"content": b"{}", "headers": {"Content-Encoding": "gzip"}}, 415),
    ],
)
def test_the_hosts_own_errors_are_in_the_envelope(
    client: httpx.Client, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    """Errors before the resource is called have the same shape, and the connection stays usable."""
    answer = client.request(method, path, **options)
    error(answer, status)
    assert ("Allow" in answer.headers) == (status == 405)
    assert client.get(PATH).status_code == 200


def _answer(connection: socket.socket) -> httpx.Response:
    """Read a response to PUT."""
    answer = HTTPResponse(connection, method="PUT")
    answer.begin()
    return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_what_the_engine_itself_refuses_is_in_the_envelope(engine: str) -> None:
    """A malformed chunk is 400, an unfinished body over the limit of memory is 503 with Retry-After."""
    settings = {"sites": {"main": {"http_engine": engine}}, "requests": {"body_memory": 1024 * 1024}}
    head = f"PUT {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    with profile_host(settings=settings) as host, ExitStack() as stack:
        place = "127.0.0.1", host.host.ports["main", "http"]
        connections = [stack.enter_context(socket.create_connection(place, timeout=60)) for _ in range(40)]
        connections[0].sendall(head + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n")
        error(_answer(connections[0]), 400)
        for each in connections[1:]:
            each.sendall(head + b"Content-Length: 100000\r\n\r\n" + b" " * 60000)
        answered = select.select(connections[1:], [], [], 60)[0]
        refused = _answer(answered[0])
        error(refused, 503)
        assert int(refused.headers["Retry-After"]) >= 1


MALFORMED_HEADS = {
    "a space in the target": (400, "PUT {path}?a b HTTP/1.1\r\n{fields}\r\n"),
    "a target not in ASCII": (400, "PUT {path}?\xc3\xa9 HTTP/1.1\r\n{fields}\r\n"),
    "an absolute target": (400, "PUT http://localhost{path}?a b HTTP/1.1\r\n{fields}\r\n"),
    "a method that is no token": (400, "P(T {path} HTTP/1.1\r\n{fields}\r\n"),
    "a line without a colon": (400, "PUT {path} HTTP/1.1\r\n{fields}X\r\n\r\n"),
    "a folded line": (400, "PUT {path} HTTP/1.1\r\n{fields}X: 1\r\n 2\r\n\r\n"),
    "a bare LF": (400, "PUT {path} HTTP/1.1\r\n{fields}X: 1\n\r\n"),
    "two lengths": (400, "PUT {path} HTTP/1.1\r\n{fields}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"),
    "an unknown coding": (400, "PUT {path} HTTP/1.1\r\n{fields}Transfer-Encoding: gzip\r\n\r\n"),
    "a large head": (431, "PUT {path} HTTP/1.1\r\n{fields}X: {long}\r\n\r\n"),
}


def test_a_malformed_head_is_in_the_envelope() -> None:
    """A head that waitress refuses before all of it is parsed has its path's format and its request id."""
    fields = "Host: localhost\r\nX-Request-ID: kept-1\r\n"
    with profile_host(settings={"sites": {"main": {"http_engine": "waitress"}}}) as host:
        place = "127.0.0.1", host.host.ports["main", "http"]
        for what, (status, head) in MALFORMED_HEADS.items():
            with socket.create_connection(place, timeout=60) as connection:
                sent = head.format(path=PATH, fields=fields, long="x" * 70_000)
                connection.sendall(sent.encode("latin-1"))
                refused = _answer(connection)
            error(refused, status)
            assert refused.headers["X-Request-ID"] == "kept-1", what


def test_an_unreachable_store_is_503() -> None:
    """The host continues to serve; the client gets Retry-After, and no details of the database."""
    pytest.importorskip("psycopg2", reason="an unreachable store is not tested: psycopg2 is not installed")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    stores = {"url": f"postgresql://somebody@127.0.0.1:{port}/profiles"}
    with profile_host(settings={"stores": stores}) as host, host.client() as client:
        for answer in (client.get(PATH), client.put(PATH, json={"gender": "OTHER"})):
            error(answer, 503)
            assert int(answer.headers["Retry-After"]) >= 1
            assert "somebody" not in answer.text
        error(client.put(PATH, json={"gender": "X"}), 422)


def test_a_defect_is_500_and_reveals_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is in the envelope as well, with the request's id and nothing internal."""

    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Profiles, "get", fail)
    with profile_host() as host, host.client() as client:
        answer = client.get(PATH)
        assert answer.headers["X-Request-ID"] in error(answer, 500)["message"]
        assert not any(word in answer.text for word in ("secret", "RuntimeError", "Traceback"))
        assert client.put(PATH, json={}).status_code == 200


def test_another_prefix_has_no_envelope(client: httpx.Client) -> None:
    """The envelope is for this plugin's prefix only."""
    for path in ("/usersx", "/user", "/users%2Fprofile"):
        assert client.get(path).headers["Content-Type"] == "application/problem+json"
