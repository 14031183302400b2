"""Who may use the service, and whose profile they see (CONTRACT 7, setting `auth`)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from plughost._plugins.registry import State
from plughost.testing import running_host

from .conftest import PATH, error, profile_host

if TYPE_CHECKING:
    import httpx

    from plughost.testing import RunningHost


def bearer(token: str) -> dict[str, str]:
    """Return the header of a token."""
    return {"Authorization": f"Bearer {token}"}


def data(answer: httpx.Response) -> dict[str, Any]:
    """Return the profile in an answer."""
    assert answer.status_code == 200
    profile: dict[str, Any] = answer.json()["data"]
    return profile


def test_without_a_token_it_is_401(bearer_host: RunningHost) -> None:
    """Reads and changes get the challenge of RFC 6750 without an error, because there was no token."""
    with bearer_host.client() as client:
        for answer in (client.get(PATH), client.put(PATH, json={}), client.put(PATH, content=b"{")):
            error(answer, 401)
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="users"'


def test_a_bad_token_is_401_in_the_same_realm(bearer_host: RunningHost) -> None:
    """The host puts the authenticator's challenge into the realm of the service."""
    with bearer_host.client() as client:
        answer = client.get(PATH, headers=bearer("bad"))
        assert error(answer, 401)["message"] == "The token is bad."
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="users", error="invalid_token"'
        error(client.get(PATH, headers=bearer("plain")), 403)


def test_each_user_has_a_profile(bearer_host: RunningHost) -> None:
    """It is created at the first use from the known data, is the user's own, and stays the same."""
    with bearer_host.client() as client:
        ann = data(client.get(PATH, headers=bearer("ann@example.org")))
        bob = data(client.get(PATH, headers=bearer("bob")))
        assert (ann["displayName"], ann["email"]) == ("ann", "ann@example.org")
        assert (bob["displayName"], bob["email"], bob["heightCm"]) == ("bob", None, None)
        assert ann["userId"] != bob["userId"]
        client.put(PATH, json={"displayName": "Bobby", "heightCm": 190}, headers=bearer("bob"))
        assert data(client.get(PATH, headers=bearer("ann@example.org"))) == ann
        assert data(client.get(PATH, headers=bearer("bob")))["displayName"] == "Bobby"


def test_a_first_request_may_be_a_change(bearer_host: RunningHost) -> None:
    """A user needs no read before the first write; an invalid first write creates nothing."""
    with bearer_host.client() as client:
        error(client.put(PATH, json={"gender": "X"}, headers=bearer("carl")), 422)
        assert data(client.put(PATH, json={"gender": "MALE"}, headers=bearer("carl")))["gender"] == "MALE"


@pytest.mark.parametrize(
    "name", ["shared", "user:x", "é€😀", "x" * 5000, "a\tb", "' OR 1=1 --"], ids=lambda name: name[:9]
)
def test_every_possible_user_name_has_its_own_profile(bearer_host: RunningHost, name: str) -> None:
    """Names that look like keys, are too long for a column or have unusual characters cause no errors or mix-ups."""
    with bearer_host.client(scheme="https", http2=True) as client:
        token = name.encode("utf-8").decode("latin-1")
        headers = {"Authorization": f"Bearer {token}".encode("latin-1")}
        first = data(client.put(PATH, json={"weightKg": 70.5}, headers=headers))  # type: ignore[arg-type] # httpx takes bytes
        assert data(client.get(PATH, headers=headers)) == first  # type: ignore[arg-type] # as above
        assert first["displayName"]
        assert len(first["displayName"]) <= 100


def test_parallel_users_are_never_mixed_up(bearer_host: RunningHost) -> None:
    """Each of many users reads back its own data, however requests interleave."""
    with bearer_host.client() as client:

        def use(number: int) -> bool:
            headers = bearer(f"user{number}")
            wrote = [
                data(client.put(PATH, json={"displayName": f"{number}/{turn}"}, headers=headers)) for turn in range(3)
            ]
            read = data(client.get(PATH, headers=headers))
            return read == wrote[-1] and {each["userId"] for each in wrote} == {read["userId"]}

        with ThreadPoolExecutor(10) as pool:
            assert all(pool.map(use, range(40)))


def test_configured_roles_are_required() -> None:
    """A user without the role is 403 with `insufficient_scope`; a user with it is accepted."""
    with profile_host(tokens=True, auth="bearer", roles=["member", "admin"]) as host, host.client() as client:
        answer = client.get(PATH, headers=bearer("ann/guest"))
        error(answer, 403)
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="users", error="insufficient_scope"'
        assert data(client.get(PATH, headers=bearer("ann/member")))["displayName"] == "ann"
        error(client.get(PATH), 401)


def test_the_hosts_errors_need_no_token(bearer_host: RunningHost) -> None:
    """Unknown paths, wrong methods and OPTIONS are answered without one."""
    with bearer_host.client() as client:
        error(client.get("/users/x"), 404)
        error(client.delete(PATH), 405)
        assert client.options(PATH).status_code in {200, 204}


def test_without_users_a_token_has_no_effect() -> None:
    """With `none`, all share one profile, whatever their token."""
    with profile_host(tokens=True) as host, host.client() as client:
        shared = data(client.get(PATH))
        for token in ("ann", "bad"):
            assert data(client.get(PATH, headers=bearer(token))) == shared


def test_a_shared_profile_belongs_to_no_user() -> None:
    """A change of the setting shows nobody's data to anybody."""
    with profile_host(tokens=True, auth="bearer") as host, host.client() as client:
        assert data(client.get(PATH, headers=bearer("shared")))["userId"] != "demo"


@pytest.mark.parametrize(
    ("settings", "reasons"),
    [
        ({"auth": "bearer"}, ["authenticator", "plughost-library-auth", 'auth = "none"']),
        ({"roles": ["admin"]}, ["roles", 'auth = "bearer"']),
        ({"rate_limit": "often"}, ["rate_limit"]),
        ({"auth": "basic"}, ["auth"]),
    ],
)
def test_invalid_settings_fail_the_plugin_with_a_remedy(settings: dict[str, Any], reasons: list[str]) -> None:
    """The operator reads the reason and the remedy in one line; the host serves the rest."""
    with running_host(["profile-template"], settings={"plugins": {"profile-template": settings}}) as host:
        generation = host.host.generation
        assert generation is not None
        entry = generation.registry.get("profile-template")
        assert entry is not None
        assert (entry.state, generation.sites) == (State.FAILED, {})
        assert all(reason in str(entry.failure) for reason in reasons)
