"""A host and a client on one lane to it, and checks that apply to every response."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx
    from tests.lanes import Lane

    from plughost.testing import RunningHost

Logged = list[dict[str, Any]]


class Reached:
    """A host and a client on one lane to it."""

    def __init__(self, host: RunningHost, lane: Lane, client: httpx.Client, logged: Logged) -> None:
        """Store the host, lane, client and log."""
        self.host = host
        self.lane = lane
        self.client = client
        self.logged = logged

    def raw(self, request: bytes) -> tuple[int, str]:
        """Send bytes over HTTP/1.1, and return the status and the whole answer."""
        with socket.create_connection(("127.0.0.1", self.host.port("main", self.lane.scheme)), timeout=20) as plain:
            connection: socket.socket = plain
            if self.lane.scheme == "https":
                context = ssl.create_default_context()
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                connection = context.wrap_socket(plain, server_hostname="localhost")
            connection.sendall(request)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            connection.close()
        return int(answer[9:12]), answer.decode("latin-1")

    def raw_get(self, target: str, *headers: str, method: str = "GET") -> tuple[int, str]:
        """Send a request target unchanged."""
        lines = [f"{method} {target} HTTP/1.1", *(headers or ("Host: localhost",)), "Connection: close", "", ""]
        return self.raw("\r\n".join(lines).encode("latin-1"))


def holds(answer: httpx.Response) -> httpx.Response:
    """Check what holds for every response, and return it."""
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.headers.get_list("x-request-id")) == 1
    if answer.content:
        assert len(answer.headers.get_list("content-type")) == 1
    return answer


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Check that an answer is a problem with this status, and return the problem."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem: dict[str, Any] = holds(answer).json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem
