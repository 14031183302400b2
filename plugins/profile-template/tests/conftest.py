"""A host that serves only this plugin, on SQLite and on PostgreSQL, and clients of its listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, cast

import falcon
import pytest

from plughost import Principal, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host, store_settings

if TYPE_CHECKING:
    import httpx

    from plughost import PluginContext
    from plughost.http import Request

PATH = "/users/profile"
UNLIMITED = "1000000/minute"
LISTENERS: dict[str, dict[str, Any]] = {
    "http/1.1": {"scheme": "http"},
    "https/1.1": {"scheme": "https"},
    "https/2": {"scheme": "https", "http2": True},
}


class TokensPlugin:
    """An authenticator for tests: a token is a user's name, then roles after slashes; `bad` is invalid."""

    @hookimpl
    def register_authenticator(self, context: PluginContext[Any]) -> Callable[[Request], Principal | None]:
        """Authenticate the user."""
        return self.principal

    def principal(self, req: Request) -> Principal | None:
        """Return the token's principal."""
        token = (req.auth or "").removeprefix("Bearer ")
        if token == "bad":
            raise falcon.HTTPUnauthorized(
                description="The token is bad.", challenges=['Bearer realm="tokens", error="invalid_token"']
            )
        if token == "plain":
            raise falcon.HTTPForbidden(description="Tokens are refused over plain HTTP.")
        name, *roles = token.split("/")
        return Principal(name, frozenset(roles)) if name else None


@contextmanager
def profile_host(*, tokens: bool = False, settings: dict[str, Any] | None = None, **own: Any) -> Iterator[RunningHost]:
    """Run a host with the plugin.

    Args:
        tokens: Whether there is an authenticator.
        settings: Of the host.
        **own: Of the plugin.
    """
    others = [plugin_distribution("tokens", TokensPlugin())] if tokens else []
    with running_host(
        ["profile-template", *(["tokens"] if tokens else [])],
        distributions=[*metadata.distributions(), *others],
        settings={**(settings or {}), "plugins": {"profile-template": {"rate_limit": UNLIMITED, **own}}},
        strict=True,
    ) as host:
        yield host


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def host(request: pytest.FixtureRequest) -> Iterator[RunningHost]:
    """A host with only this plugin, on each engine."""
    with store_settings(request.param) as settings, profile_host(settings=settings) as running:
        yield running


@pytest.fixture(scope="session")
def clients(host: RunningHost) -> Iterator[dict[str, httpx.Client]]:
    """A client for each listener and version of HTTP."""
    opened = {name: host.client(**options) for name, options in LISTENERS.items()}
    yield opened
    for client in opened.values():
        client.close()


@pytest.fixture(params=LISTENERS)
def client(request: pytest.FixtureRequest, clients: dict[str, httpx.Client]) -> httpx.Client:
    """A client for one listener and version of HTTP."""
    return clients[cast("str", request.param)]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def bearer_host(request: pytest.FixtureRequest) -> Iterator[RunningHost]:
    """A host whose tokens name users, on each engine."""
    with (
        store_settings(request.param) as settings,
        profile_host(tokens=True, auth="bearer", settings=settings) as running,
    ):
        yield running


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Check an error's envelope, and return it."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    envelope = cast("dict[str, Any]", answer.json())
    assert envelope["status"] == "error"
    assert envelope["code"] == status
    assert envelope["message"]
    assert envelope.keys() - {"errors"} == {"status", "message", "code", "timestamp"}
    assert_now(envelope["timestamp"], answer)
    return envelope


def assert_now(timestamp: object, answer: httpx.Response) -> None:
    """Assert that a timestamp is about the time of the answer, whose Date has whole seconds."""
    assert type(timestamp) is int
    date = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    assert abs(timestamp / 1000 - date) < 60
