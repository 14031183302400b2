"""The rate limit of the service (CONTRACT 7)."""

from __future__ import annotations

from plughost_profile_template.settings import Settings

from .conftest import PATH, error, profile_host


def test_every_answer_shows_the_remainder() -> None:
    """This includes errors."""
    with profile_host(rate_limit="100/minute") as host, host.client() as client:
        for path, left in ((PATH, "99"), ("/users/x", "98")):
            headers = client.get(path).headers
            assert (headers["RateLimit-Limit"], headers["RateLimit-Remaining"]) == ("100", left)
            assert 1 <= int(headers["RateLimit-Reset"]) <= 60


def test_too_many_requests_are_429_in_the_envelope() -> None:
    """Every request below the prefix counts; the refusal has Retry-After."""
    with profile_host(rate_limit="3/hour") as host, host.client() as client:
        client.get(PATH)
        client.put(PATH, content=b"{")
        client.get("/users/x")
        for answer in (client.get(PATH), client.put(PATH, json={}), client.get("/users/x"), client.delete(PATH)):
            error(answer, 429)
            assert 1 <= int(answer.headers["Retry-After"]) <= 3600
            assert answer.headers["RateLimit-Remaining"] == "0"


def test_users_have_their_own_limits_and_guesses_share_one() -> None:
    """One user's requests don't block another; bad tokens are limited by address."""
    with profile_host(tokens=True, auth="bearer", rate_limit="2/hour") as host, host.client() as client:
        for name in ("ann", "bob"):
            headers = {"Authorization": f"Bearer {name}"}
            assert [client.get(PATH, headers=headers).status_code for _ in range(3)] == [200, 200, 429]
        bad = {"Authorization": "Bearer bad"}
        assert [client.get(PATH, headers=bad).status_code for _ in range(3)] == [401, 401, 429]
        error(client.get(PATH), 429)


def test_the_default_is_100_a_minute() -> None:
    """This is the contract's default."""
    assert Settings().rate_limit == "100/minute"
