"""Profiles of library-auth's users: another plugin on another site accepts its tokens (CONTRACT 7)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import bcrypt
import pytest

from plughost.testing import RunningHost, running_host, store_settings

if TYPE_CHECKING:
    import httpx

PROFILE = "/users/profile"
USERS = 100


@pytest.fixture(scope="module", params=[pytest.param("sqlite", marks=pytest.mark.thorough), "postgresql"])
def host(request: pytest.FixtureRequest) -> Iterator[RunningHost]:
    """A host with both plugins and a hundred users, on each engine."""
    users = [
        {
            "email": f"user{number}@example.org",
            "password_hash": bcrypt.hashpw(f"password {number}".encode(), bcrypt.gensalt(4)).decode(),
            "role": "user",
        }
        for number in range(USERS)
    ]
    plugins = {
        "library-auth": {"users": users, "algorithm": "EdDSA"},
        "profile-template": {"auth": "bearer", "rate_limit": "20/hour"},
    }
    with (
        store_settings(request.param) as settings,
        running_host(
            ["library-auth", "profile-template"], settings={**settings, "plugins": plugins}, strict=True
        ) as running,
    ):
        yield running


def test_a_hundred_parallel_users_are_never_mixed_up(host: RunningHost) -> None:
    """Each logs in, reads, writes and reads again, and sees only their own data, with their own limit."""
    few = threading.BoundedSemaphore(3)  # one is checked and two wait, even on one core; further ones are 503
    with (
        host.client("library", "https") as library,
        host.client("main", "http") as plain,
        host.client("main", "https", http2=True) as secure,
    ):

        def use(number: int) -> dict[str, Any]:
            email, client = f"user{number}@example.org", (plain, secure)[number % 2]
            with few:
                login = library.get("/mylibrary/setup/login", auth=(email, f"password {number}"))
            assert login.status_code == 200, login.text
            token = login.text
            client_headers = {"Authorization": f"Bearer {token}"}
            first = data(client.get(PROFILE, headers=client_headers))
            assert (first["email"], first["displayName"]) == (email, f"user{number}")
            for turn in range(3):
                change = {"displayName": f"{number}, turn {turn}", "heightCm": 100 + number}
                wrote = client.put(PROFILE, json=change, headers=client_headers)
                other = (secure, plain)[number % 2].get(PROFILE, headers=client_headers)
                assert data(other) == data(wrote)
                assert data(wrote) == {**first, **change, "updatedAt": data(wrote)["updatedAt"]}
            assert other.headers["RateLimit-Remaining"] == str(20 - 7)
            return first

        with ThreadPoolExecutor(16) as pool:
            profiles = list(pool.map(use, range(USERS)))
    assert len({profile["userId"] for profile in profiles}) == USERS


def test_refusals_of_the_library_are_in_the_profiles_envelope(host: RunningHost) -> None:
    """A forged token is 401 according to RFC 6750, in the format of the requested prefix."""
    with host.client() as client:
        answer = client.get(PROFILE, headers={"Authorization": "Bearer no.such.token"})
        assert (answer.status_code, answer.json()["status"], answer.json()["code"]) == (401, "error", 401)
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="users", error="invalid_token"'


def test_tokens_over_plain_http_are_refused_where_required() -> None:
    """library-auth's `require_tls` applies to every plugin that accepts its tokens: 403 in the envelope."""
    plugins = {"library-auth": {"require_tls": True}, "profile-template": {"auth": "bearer"}}
    with running_host(["library-auth", "profile-template"], settings={"plugins": plugins}) as host:
        with host.client("library", "https") as library:
            token = library.get("/mylibrary/setup/login", auth=("user@example.org", "user")).text
        headers = {"Authorization": f"Bearer {token}"}
        with host.client() as plain, host.client(scheme="https") as secure:
            refused = plain.get(PROFILE, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, 403)
            assert str(host.port("main", "https")) in refused.json()["message"]
            assert secure.get(PROFILE, headers=headers).status_code == 200


def data(answer: httpx.Response) -> dict[str, Any]:
    """Return the profile in an answer."""
    assert answer.status_code == 200, answer.text
    profile: dict[str, Any] = answer.json()["data"]
    return profile
