"""Each row of the contract for messages, over real HTTP, on each engine (CONTRACT 2 and 6)."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx

    from plughost.testing import RunningHost
    from plughost_messages.store import Messages

PROBLEM = "application/problem+json"
NO_IDS = ("0", "-1", "+1", "1%2F", "abc", "1.0", "1e3", "%20", "%00", "٣", "9223372036854775808", "9" * 400)


def create(client: httpx.Client, content: str) -> dict[str, Any]:
    """Create a message, and return it."""
    answer = client.post("/messages", json={"content": content})
    assert answer.status_code == 201
    message: dict[str, Any] = answer.json()
    return message


def test_no_messages_are_an_empty_array(client: httpx.Client) -> None:
    """It is no error."""
    answer = client.get("/messages")
    assert (answer.status_code, answer.json()) == (200, [])
    assert answer.headers["content-type"] == "application/json"


def test_a_created_message_can_be_read(client: httpx.Client) -> None:
    """The create, Location and the list return the same message."""
    answer = client.post("/messages", json={"content": "Hello"})
    created = answer.json()
    assert (answer.status_code, answer.headers["api-version"]) == (201, "1.0")
    assert list(created) == ["id", "content", "createdAt"]
    assert created["content"] == "Hello"
    assert answer.headers["location"] == f"/messages/{created['id']}"
    assert client.get(answer.headers["location"]).json() == created
    assert client.get("/messages").json() == [created]


def test_created_at_is_local_time_without_zone(client: httpx.Client) -> None:
    """The time is the server's, in ISO 8601 without a zone."""
    before = datetime.now()
    created_at = datetime.fromisoformat(create(client, "now")["createdAt"])
    assert created_at.tzinfo is None
    assert before <= created_at <= before + timedelta(minutes=1)


def test_the_list_is_sorted_by_id(client: httpx.Client) -> None:
    """Later messages have higher ids."""
    created = [create(client, str(number)) for number in range(5)]
    assert client.get("/messages").json() == created
    assert [message["id"] for message in created] == sorted(message["id"] for message in created)


def test_a_clients_id_and_time_are_ignored(client: httpx.Client) -> None:
    """The members id and createdAt, and unknown ones, have no effect in a body."""
    body = {"id": 2**62, "createdAt": "1970-01-01T00:00:00", "content": "mine", "more": [1]}
    created = client.post("/messages", json=body).json()
    assert created["id"] < 2**62
    assert not created["createdAt"].startswith("1970")


def test_a_message_is_deleted_once(client: httpx.Client) -> None:
    """A delete is 204 without a body; afterwards the message is a 404 without a body."""
    path = f"/messages/{create(client, 'bye')['id']}"
    gone = client.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    for method in ("GET", "DELETE"):
        assert client.request(method, path).status_code == 404


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
@pytest.mark.parametrize("number", ["9223372036854775807", *NO_IDS])
def test_an_unknown_id_is_an_empty_404(client: httpx.Client, method: str, number: str) -> None:
    """Anything except a message's id is 404 without a body and without a Content-Type."""
    answer = client.request(method, f"/messages/{number}")
    assert answer.status_code == 404
    if number != "%00":  # no such message can exist: an ordinary 404
        assert answer.content == b""
        assert answer.headers["content-length"] == "0"
        assert "content-type" not in answer.headers


@pytest.mark.parametrize("path", ["/messages/1/x", "/messages//1", "/messages/1//"])
def test_an_unknown_path_below_is_an_ordinary_404(client: httpx.Client, path: str) -> None:
    """Only ids are answered without a body; other paths below the prefix get problem details."""
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == PROBLEM
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "content", ["", " ", "a" * 500, "😀" * 500, '\u0001\t\n"\\', "e\u0301", " spaces ", "<script>"]
)
def test_content_is_stored_as_sent(client: httpx.Client, content: str) -> None:
    """Up to 500 code points of any kind but NUL come back unchanged, even none."""
    created = create(client, content)
    assert created["content"] == content
    assert client.get(f"/messages/{created['id']}").json() == created


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "must not be null"),
        ({"content": None}, "must not be null"),
        ({"content": 5}, "must be a string"),
        ({"content": ["a"]}, "must be a string"),
        ({"content": "a" * 501}, "size must be between 0 and 500"),
        ({"content": "😀" * 501}, "size must be between 0 and 500"),
        ({"content": "a\0b"}, "must not contain NUL"),
    ],
)
def test_invalid_content_is_refused(client: httpx.Client, body: dict[str, Any], message: str) -> None:
    """It is a 400 that names the field, and nothing is stored."""
    answer = client.post("/messages", json=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == PROBLEM
    problem = answer.json()
    assert problem["title"] == "Constraint Violation"
    assert problem["violations"] == [{"field": "content", "message": message}]
    assert problem["detail"] == f"content: {message}"
    assert client.get("/messages").json() == []


def test_ids_are_never_reused(client: httpx.Client) -> None:
    """The id of a deleted message is not reused, even if it was the highest."""
    first = create(client, "x")["id"]
    client.delete(f"/messages/{first}")
    assert create(client, "y")["id"] > first


def test_concurrent_creates_are_all_stored(client: httpx.Client, host: RunningHost) -> None:
    """Simultaneous creates over both listeners get different ids, and all are listed."""
    with host.client(scheme="https") as secure, ThreadPoolExecutor(8) as pool:
        clients = itertools.cycle([client, secure])
        created = list(pool.map(create, itertools.islice(clients, 64), map(str, range(64))))
    assert len({message["id"] for message in created}) == 64
    assert client.get("/messages").json() == sorted(created, key=lambda message: message["id"])


@pytest.mark.parametrize("number", [500, 501, *(pytest.param(n, marks=pytest.mark.thorough) for n in (499, 1001))])
def test_a_long_list_is_complete(client: httpx.Client, messages: Messages, number: int) -> None:
    """A list longer than a batch is streamed completely and in order."""
    for each in range(number):
        messages.create(str(each))
    answer = client.get("/messages")
    assert [message["content"] for message in answer.json()] == [str(i) for i in range(number)]
    assert ("content-length" in answer.headers) == (number <= 500)
