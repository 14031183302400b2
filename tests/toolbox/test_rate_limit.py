"""A plugin's declared rate limit, on a real host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import NotesPlugin, notes_host

if TYPE_CHECKING:
    import httpx


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A client of a plugin that allows three requests."""
    with notes_host(NotesPlugin()) as host, host.client() as client:
        yield client


def remaining(answer: httpx.Response) -> str:
    """Return the number of remaining requests according to an answer."""
    assert answer.headers["RateLimit-Limit"] == "3"
    assert 1 <= int(answer.headers["RateLimit-Reset"]) <= 3600
    return answer.headers["RateLimit-Remaining"]


def test_one_request_too_many_is_429_in_the_plugin_s_format(client: httpx.Client) -> None:
    """Three are accepted with the number of remaining ones; the fourth says when to come back."""
    responses = [client.get("/notes") for _ in range(4)]
    assert [answer.status_code for answer in responses] == [200, 200, 200, 429]
    assert [remaining(answer) for answer in responses] == ["2", "1", "0", "0"]
    refused = responses[-1]
    assert refused.headers["Retry-After"] == refused.headers["RateLimit-Reset"]
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert (refused.json()["title"], refused.json()["status"]) == ("Too Many Requests", 429)


def test_the_current_drafts_fields_are_equivalent(client: httpx.Client) -> None:
    """RateLimit-Policy has quota and window, RateLimit the remainder and its end, as structured fields."""
    for _ in range(4):
        headers = client.get("/notes").headers
        assert headers["RateLimit-Policy"] == '"requests";q=3;w=3600'
        assert headers["RateLimit"] == f'"requests";r={headers["RateLimit-Remaining"]};t={headers["RateLimit-Reset"]}'


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/notes/nothing", {}, 404),
        ("DELETE", "/notes", {}, 405),
        ("GET", "/notes", {"headers": {"Accept": "text/html"}}, 406),
        ("GET", "/notes", {"headers": {"API-Version": "9"}}, 400),
        ("PUT", "/notes", {"content": b"x" * 1_100_000}, 413),
        ("PUT", "/notes", {}, 500),
        ("HEAD", "/notes", {}, 200),
        ("OPTIONS", "/notes", {}, 200),
    ],
)
def test_every_answer_counts_and_has_the_fields(
    client: httpx.Client, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    """An error of the host itself counts like any request."""
    answer = client.request(method, path, **options)
    assert (answer.status_code, remaining(answer)) == (status, "2")
    assert remaining(client.get("/notes")) == "1"


def test_users_are_counted_by_name_and_others_by_address(client: httpx.Client) -> None:
    """A user has the whole limit, whoever shares the address; a bad token makes no user."""
    for name in ("ann", "bob"):
        headers = {"Authorization": f"Bearer {name}"}
        assert [client.get("/notes", headers=headers).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert remaining(client.get("/notes")) == "2"
    assert remaining(client.get("/notes", headers={"Authorization": "Bearer bad"})) == "1"


def test_a_forwarded_address_without_a_trusted_proxy_is_ignored(client: httpx.Client) -> None:
    """It gives a client no further requests."""
    responses = [client.get("/notes", headers={"X-Forwarded-For": f"192.0.2.{number}"}) for number in range(4)]
    assert responses[-1].status_code == 429


def test_clients_behind_a_trusted_proxy_are_distinguished() -> None:
    """The address that the proxy names counts."""
    with notes_host(NotesPlugin(), trusted_proxies=["127.0.0.1/32"]) as host, host.client() as client:
        first = [client.get("/notes", headers={"X-Forwarded-For": "192.0.2.1"}) for _ in range(4)]
        assert first[-1].status_code == 429
        assert remaining(client.get("/notes", headers={"X-Forwarded-For": "192.0.2.2"})) == "2"


def test_the_port_that_a_proxy_names_is_ignored() -> None:
    """Some proxies add the client's port, which changes with each connection."""
    with notes_host(NotesPlugin(), trusted_proxies=["127.0.0.1/32"]) as host, host.client() as client:
        left = [
            remaining(client.get("/notes", headers={"X-Forwarded-For": address}))
            for address in ("192.0.2.1:4711", "192.0.2.1:4712", "192.0.2.1", "[2001:db8::1]:4711")
        ]
        assert left == ["2", "1", "0", "2"]


def test_plugins_are_counted_separately() -> None:
    """Requests to one plugin don't count for another's limit."""
    with notes_host(NotesPlugin(), NotesPlugin(name="other")) as host, host.client() as client:
        assert [remaining(client.get(path)) for path in ("/notes", "/other", "/notes")] == ["2", "2", "1"]


def test_both_listeners_count_together() -> None:
    """HTTP and HTTPS are one site: a client can't double its limit."""
    with notes_host(NotesPlugin()) as host, host.client() as plain, host.client(scheme="https", http2=True) as secure:
        assert [remaining(client.get("/notes")) for client in (plain, secure, plain)] == ["2", "1", "0"]
        assert secure.get("/notes").status_code == 429


def test_an_unchanged_plugin_keeps_its_counts_over_a_reload() -> None:
    """A reload resets no limit."""
    with notes_host(NotesPlugin()) as host, host.client() as client:
        assert remaining(client.get("/notes")) == "2"
        host.host.reload()
        assert remaining(client.get("/notes")) == "1"


def test_changed_settings_of_limits_reach_unchanged_plugins() -> None:
    """Their hooks are called again, and they count as the new settings say."""
    with notes_host(NotesPlugin()) as host, host.client() as client:
        assert remaining(client.get("/notes")) == "2"
        file = host.host.settings.file
        assert file is not None
        file.write_text(f"{file.read_text()}\n[rate_limits]\ntimeout = 0.7\n")
        assert set(host.host.reload().changed) == {"notes", "tokens"}
        assert remaining(client.get("/notes")) == "2"
        assert host.host.reload().changed == ()
        assert remaining(client.get("/notes")) == "1"
