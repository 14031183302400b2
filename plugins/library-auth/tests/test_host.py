"""The service on a real host: both listeners, verified TLS, HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from plughost.testing import RunningHost, running_host
from plughost_library_auth.keyring import KEY_FILE, KeyFile, KeyRing

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

USER = ("user@example.org", "user")
LOGIN = "/mylibrary/setup/login"
SECURED = "/mylibrary/setup/secured"
SERVICE = "/mylibrary/libraryAuthentification"
JWKS = "/mylibrary/.well-known/jwks.json"


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host with only this plugin, with `--dev`."""
    with running_host(plugins=["library-auth"], strict=True) as host:
        yield host


@pytest.fixture(params=[("http", False), ("https", False), ("https", True)], ids=["HTTP", "HTTPS", "HTTP/2"])
def client(request: pytest.FixtureRequest, host: RunningHost) -> Iterator[httpx.Client]:
    """A client for each listener and version of HTTP."""
    scheme, http2 = request.param
    with host.client("library", scheme, http2=http2) as client:
        yield client


def bearer(client: httpx.Client, name: str = "user") -> dict[str, str]:
    """Log in a demo user, and return the header for later requests."""
    return {"Authorization": f"Bearer {client.get(LOGIN, auth=(f'{name}@example.org', name)).text}"}


def test_a_user_logs_in_and_is_authorized(client: httpx.Client) -> None:
    """Login, authorized access and refusal work on each listener, with each version of HTTP."""
    token = bearer(client)
    assert client.get(SECURED, headers=token).json()["email"] == "user@example.org"
    assert client.get(f"{SECURED}/admin", headers=token).status_code == 403
    assert client.get(f"{SECURED}/admin", headers=bearer(client, "admin")).status_code == 200
    refused = client.get(SECURED).headers
    assert (refused["www-authenticate"], refused["api-version"]) == ('Bearer realm="mylibrary"', "1.0")


def test_a_token_is_valid_on_every_listener(host: RunningHost) -> None:
    """The site has one state: HTTP accepts a token from HTTPS."""
    with host.client("library", "https") as secure, host.client("library", "http") as plain:
        assert plain.get(SECURED, headers=bearer(secure)).status_code == 200


def test_two_authorization_headers_are_invalid(client: httpx.Client) -> None:
    """Any listener may join them, but the result is no valid header."""
    token = bearer(client)["Authorization"]
    twice = [("Authorization", token), ("Authorization", token)]
    assert client.get(SECURED, headers=twice).status_code == 401
    basic = "Basic dXNlckBleGFtcGxlLm9yZzp1c2Vy"
    assert client.get(LOGIN, headers=[("Authorization", basic), ("Authorization", basic)]).status_code == 401


@pytest.mark.parametrize(("http2", "version"), [(False, "1.1"), (True, "2")])
def test_the_secure_port_describes_the_service(host: RunningHost, http2: bool, version: str) -> None:
    """The redirect from plain HTTP leads to a description whose addresses work."""
    with host.client("library", "https", http2=http2, follow_redirects=True) as client:
        plain = host.url("library", "http").replace("127.0.0.1", "localhost")
        answer = client.get(f"{plain}{SERVICE}")
        assert [each.status_code for each in (*answer.history, answer)] == [308, 200]
        assert answer.url.port == host.port("library", "https")
        assert (answer.json()["httpVersion"], answer.json()["scheme"]) == (version, "https")
        assert client.get(answer.json()["login"], auth=USER).status_code == 200
        assert client.get(answer.json()["jwks"]).json()["keys"][0]["alg"] == "RS256"


def test_a_running_host_uses_a_rotated_key(host: RunningHost) -> None:
    """The next login uses a key that another process has created; earlier tokens stay valid."""
    with host.client("library", "http") as client:
        before = bearer(client)
        folder = host.host.settings.data_dir / "plugins" / "library-auth"
        new = KeyRing(folder, algorithm="RS256", lifetime=900).rotate()
        after = bearer(client)
        assert [client.get(SECURED, headers=token).status_code for token in (before, after)] == [200, 200]
        assert new.kid in [key["kid"] for key in client.get("/mylibrary/.well-known/jwks.json").json()["keys"]]


def test_a_key_that_can_not_be_stored_is_503(tmp_path: Path) -> None:
    """If the first key can't be stored, as on a full disk, key set and login ask to retry; later they work."""
    folder = tmp_path / "plugins" / "library-auth"
    folder.parent.mkdir()
    folder.write_text("in the way of the plugin's folder")
    with running_host(["library-auth"], data_dir=tmp_path) as host, host.client("library") as client:
        responses = [client.get(JWKS), client.get(LOGIN, auth=USER)]
        assert [each.status_code for each in responses] == [503, 503]
        assert all(each.headers["Retry-After"] for each in responses)
        folder.unlink()
        assert len(client.get(JWKS).json()["keys"]) == 1
        assert client.get(LOGIN, auth=USER).status_code == 200


def test_a_key_that_could_not_be_stored_is_stored_later(tmp_path: Path) -> None:
    """Nobody has to log in first: a host that is not ready gets no login. Revoked tokens are noticed meanwhile."""
    folder = tmp_path / "plugins" / "library-auth"
    folder.parent.mkdir()
    folder.write_text("in the way of the plugin's folder")
    before = set(threading.enumerate())
    with running_host(["library-auth"], data_dir=tmp_path):
        started = {thread.name: thread for thread in threading.enumerate() if thread not in before}
        assert "revoked-tokens" in started
        folder.unlink()
        started["signing-key"].join(30)
        assert len(KeyFile.read(folder / KEY_FILE).keys) == 1
