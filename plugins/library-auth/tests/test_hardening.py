"""Guesses, revoked tokens and discovery on real hosts, on SQLite and on PostgreSQL."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import bcrypt
import httpx
import pytest
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator
from authlib.oidc.discovery import OpenIDProviderMetadata
from joserfc.jwk import KeySet

from plughost.testing import RunningHost, fresh_postgresql, running_host, store_settings

if TYPE_CHECKING:
    from pathlib import Path

USER = ("user@example.org", "user")
LOGIN = "/mylibrary/setup/login"
SECURED = "/mylibrary/setup/secured"
AUDIENCE = "https://library.example.org"
DISCOVERY = "/mylibrary/.well-known/openid-configuration"


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Settings for the store on each engine."""
    with store_settings(request.param) as settings:
        yield settings


@pytest.fixture
def host(settings: dict[str, Any]) -> Iterator[RunningHost]:
    """A host with the demo users."""
    with running_host(["library-auth"], settings=settings, strict=True) as host:
        yield host


def client_from(host: RunningHost, address: str) -> httpx.Client:
    """Return a client of the host that comes from an address of this machine."""
    return host.client("library", transport=httpx.HTTPTransport(local_address=address))


def bearer(client: httpx.Client, user: tuple[str, str] = USER) -> dict[str, str]:
    """Log in, and return the header for later requests."""
    answer = client.get(LOGIN, auth=user)
    assert answer.status_code == 200, answer.text
    return {"Authorization": f"Bearer {answer.text}"}


def test_distributed_guesses_lock_out_strangers_and_not_the_user(host: RunningHost) -> None:
    """Thirty addresses share less than a hundred guesses, waits grow, and the user can still log in."""
    with ExitStack() as stack:
        owner = stack.enter_context(client_from(host, "127.0.0.1"))
        bearer(owner)
        responses = []
        for number in range(30):
            stranger = stack.enter_context(client_from(host, f"127.0.1.{number + 1}"))
            responses += [stranger.get(LOGIN, auth=(USER[0], f"guess {number} {each}")) for each in range(4)]
        assert Counter(answer.status_code for answer in responses) == {401: 90, 429: 30}
        waits = [int(answer.headers["Retry-After"]) for answer in responses if answer.status_code == 429]
        assert waits == sorted(waits)
        assert waits[0] < waits[-1]
        bearer(owner)
        assert stack.enter_context(client_from(host, "127.0.2.1")).get(LOGIN, auth=USER).status_code == 429


def test_a_name_that_folds_to_another_is_a_different_user(host: RunningHost) -> None:
    """U+017F is not s: neither logins nor failures count for the similar account."""
    with host.client("library") as client:
        for _ in range(5):
            assert client.get(LOGIN, auth=("u\u017fer@example.org", "user")).status_code == 401
        bearer(client)
        bearer(client, ("USER@example.org", "user"))


def test_a_revoked_token_is_invalid_everywhere(host: RunningHost) -> None:
    """It is 401 on every listener; another token of the same user stays valid."""
    with host.client("library") as plain, host.client("library", "https") as secure:
        token, other = bearer(plain), bearer(plain)
        answer = secure.delete(LOGIN, headers=token)
        assert (answer.status_code, answer.content) == (204, b"")
        for client in (plain, secure):
            refused = client.get(SECURED, headers=token)
            assert (refused.status_code, 'error="invalid_token"' in refused.headers["WWW-Authenticate"]) == (401, True)
            assert client.delete(LOGIN, headers=token).status_code == 401
            assert client.get(SECURED, headers=other).status_code == 200


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer x.y.z"}, {"Authorization": "Basic dXNlcjp1c2Vy"}])
def test_only_a_valid_token_can_be_revoked(host: RunningHost, header: dict[str, str]) -> None:
    """Without a token, and with garbage or a password, nothing is revoked."""
    with host.client("library") as client:
        assert client.delete(LOGIN, headers=header).status_code == 401


def test_a_token_stays_revoked_after_a_restart(settings: dict[str, Any], tmp_path: Path) -> None:
    """Revocations are stored: the next process refuses the token from its first request on."""
    with running_host(["library-auth"], settings=settings, data_dir=tmp_path) as host, host.client("library") as client:
        token, other = bearer(client), bearer(client)
        assert client.delete(LOGIN, headers=token).status_code == 204
    with running_host(["library-auth"], settings=settings, data_dir=tmp_path) as host, host.client("library") as client:
        assert client.get(SECURED, headers=token).status_code == 401
        assert client.get(SECURED, headers=other).status_code == 200


def test_hosts_that_share_a_store_share_revocations(tmp_path: Path) -> None:
    """The other host soon refuses the token, without a request to it in between."""
    with fresh_postgresql() as url, ExitStack() as stack:
        clients: list[httpx.Client] = []
        for name in ("one", "two"):
            folder = tmp_path / name / "plugins" / "library-auth"
            folder.mkdir(parents=True, mode=0o700)
            if clients:  # hosts that accept each other's tokens have the same keys
                keys = tmp_path / "one" / "plugins" / "library-auth" / "signing-keys.json"
                (folder / keys.name).write_bytes(keys.read_bytes())
            options: dict[str, Any] = {"settings": {"stores": {"url": url}}, "data_dir": tmp_path / name}
            host = stack.enter_context(running_host(["library-auth"], **options))
            clients.append(stack.enter_context(host.client("library")))
        one, two = clients
        token = bearer(one)
        assert two.get(SECURED, headers=token).status_code == 200
        assert one.delete(LOGIN, headers=token).status_code == 204
        until = time.monotonic() + 30
        while two.get(SECURED, headers=token).status_code == 200 and time.monotonic() < until:
            pass
        assert two.get(SECURED, headers=token).status_code == 401


class _Validator(JWTBearerTokenValidator):  # type: ignore[misc] # authlib has no types
    """authlib's validator of access tokens, with the keys from discovery."""

    def __init__(self, issuer: str, keys: dict[str, Any]) -> None:
        super().__init__(issuer, AUDIENCE)
        self._keys = keys

    def get_jwks(self) -> KeySet:
        return KeySet.import_key_set(self._keys)  # type: ignore[arg-type] # the JSON may have any type


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_authlib_needs_only_the_address(algorithm: str) -> None:
    """It finds the metadata, whose issuer is that address, and the keys, and verifies a token and its end."""
    table = {"plugins": {"library-auth": {"algorithm": algorithm, "audience": AUDIENCE}}}
    with (
        running_host(["library-auth"], settings=table, strict=True) as host,
        host.client("library", "https") as client,
    ):
        metadata = client.get(DISCOVERY).json()
        AuthorizationServerMetadata(metadata).validate()
        OpenIDProviderMetadata(metadata).validate()
        assert f"{metadata['issuer']}/.well-known/openid-configuration" == f"{host.url('library', 'https')}{DISCOVERY}"
        validator = _Validator(metadata["issuer"], client.get(metadata["jwks_uri"]).json())
        token = client.get(metadata["token_endpoint"], auth=USER).text
        claims = validator.authenticate_token(token)
        validator.validate_token(claims, [], None, roles=["user"])
        assert claims["sub"] == "user@example.org"
        trusting = ssl.create_default_context(cafile=str(host.host.tls.certificate)) if host.host.tls else False
        with OAuth2Client(token={"access_token": token, "token_type": "Bearer"}, verify=trusting) as session:
            secured = f"{metadata['issuer']}/setup/secured"
            assert session.get(secured).json()["email"] == claims["sub"]
            assert session.delete(metadata["token_endpoint"]).status_code == 204
            assert session.get(secured).status_code == 401


def test_a_forged_host_changes_no_address(host: RunningHost) -> None:
    """Neither the key set's address nor a token's issuer comes from the request."""
    with host.client("library") as client:
        metadata = client.get(DISCOVERY, headers={"Host": "evil.example"}).json()
    assert not [value for value in metadata.values() if "evil" in str(value)]


def test_a_configured_issuer_is_the_base_of_all_addresses() -> None:
    """If the issuer is an address, all metadata is below it."""
    table = {"plugins": {"library-auth": {"issuer": "https://id.example.org/mylibrary"}}}
    with running_host(["library-auth"], settings=table) as host, host.client("library") as client:
        metadata = client.get(DISCOVERY).json()
    assert metadata["issuer"] == "https://id.example.org/mylibrary"
    assert metadata["jwks_uri"] == "https://id.example.org/mylibrary/.well-known/jwks.json"


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_tokens_do_not_wait_for_logins(engine: str) -> None:
    """While eight clients log in, others are refused at once, and a token is verified before the first login ends."""
    dear = "$2b$15$" + bcrypt.hashpw(b"user", bcrypt.gensalt(4)).decode()[7:]  # nobody succeeds, and it takes seconds
    users = [{"email": "dear@example.org", "password_hash": dear, "role": "user"}]
    table = {"plugins": {"library-auth": {"users": users}}, "sites": {"library": {"http_engine": engine}}}
    with running_host(["library-auth"], settings=table) as host, ExitStack() as stack:
        clients = [stack.enter_context(host.client("library")) for _ in range(9)]
        pool = stack.enter_context(ThreadPoolExecutor(8))
        logins = [pool.submit(client.get, LOGIN, auth=USER, timeout=120) for client in clients[:8]]
        answered = as_completed(logins)
        refused = [next(answered).result().status_code for _ in range(4)]  # these found all places taken
        for _ in range(20):
            assert clients[8].get(SECURED, headers={"Authorization": "Bearer x.y.z"}).status_code == 401
        assert {*refused, *(login.result().status_code for login in logins if login.done())} == {503}


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_simultaneous_logins_wait_in_turn(engine: str) -> None:
    """Eight users who log in together all succeed."""
    hashed = bcrypt.hashpw(b"user", bcrypt.gensalt(8)).decode()
    users = [{"email": f"user{number}@example.org", "password_hash": hashed, "role": "user"} for number in range(8)]
    table = {"plugins": {"library-auth": {"users": users}}, "sites": {"library": {"http_engine": engine}}}
    with running_host(["library-auth"], settings=table) as host, ExitStack() as stack:
        clients = [stack.enter_context(host.client("library", timeout=60)) for _ in users]
        pool = stack.enter_context(ThreadPoolExecutor(8))
        logins = [
            pool.submit(client.get, LOGIN, auth=(user["email"], "user"))
            for client, user in zip(clients, users, strict=True)
        ]
        assert Counter(login.result().status_code for login in logins) == {200: 8}


def test_too_many_simultaneous_logins_are_refused() -> None:
    """Some get 503 with Retry-After; none gets a 500, and a token's owner is served."""
    hashed = bcrypt.hashpw(b"user", bcrypt.gensalt(10)).decode()
    user = {"email": USER[0], "password_hash": hashed, "role": "user"}
    table = {"plugins": {"library-auth": {"users": [user]}}}
    with running_host(["library-auth"], settings=table) as host, ExitStack() as stack:
        clients = [stack.enter_context(host.client("library", "https")) for _ in range(16)]
        token = bearer(clients[0])
        pool = stack.enter_context(ThreadPoolExecutor(16))
        logins = [pool.submit(client.get, LOGIN, auth=USER) for client in clients for _ in range(4)]
        assert clients[0].get(SECURED, headers=token).status_code == 200
        responses = [login.result() for login in logins]
    assert {answer.status_code for answer in responses} <= {200, 503}
    assert all("Retry-After" in answer.headers for answer in responses if answer.status_code == 503)
