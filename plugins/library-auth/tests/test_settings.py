"""Which settings are accepted, and how others are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from plughost_library_auth.settings import Settings

# A real hash, of `user` with four rounds.
HASH = "$2b$04$......................w74bL5gU7LSJClZClCa.Pkz14aTv/XO"


def table(**user: Any) -> dict[str, Any]:
    """Return a table with one user, valid except for the given members."""
    return {"users": [{"email": "user@example.org", "password_hash": HASH, "role": "user", **user}]}


def test_an_empty_table_has_the_defaults_of_the_contract() -> None:
    """The defaults are no users, 900 seconds, RS256, both ports, and the login limits."""
    settings = Settings()
    assert (settings.users, settings.token_lifetime, settings.issuer) == ((), 900, None)
    assert (settings.algorithm, settings.require_tls) == ("RS256", False)
    assert (settings.login_limit_account, settings.login_limit_address) == ("5/minute", "20/minute")


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2y$"])
def test_hashes_of_other_tools_are_accepted(prefix: str) -> None:
    """The variants from htpasswd and other tools are bcrypt too."""
    assert Settings.model_validate(table(password_hash=prefix + HASH[4:])).users[0].rounds == 4


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "secret",
        "hunter2",
        HASH[:-1],
        HASH + "x",
        HASH.replace("$04$", "$03$"),
        HASH.replace("$04$", "$31$"),
        HASH.replace("$2b$", "$2x$"),
        HASH[:28] + "9" + HASH[29:],
        HASH + "\n",
        "$2b$٠٤$" + HASH[7:],
    ],
)
def test_an_invalid_hash_is_refused_with_the_users_name(garbage: str) -> None:
    """The error also names the command that helps, and does not contain the value."""
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(table(password_hash=garbage))
    assert "password_hash of user@example.org is not a bcrypt hash" in str(caught.value)
    assert "hash-password" in str(caught.value)
    assert not garbage or garbage not in str(caught.value)


@pytest.mark.parametrize(
    "email", ["", "user", "a b@example.org", "a:b@example.org", "@", "a@b@c", "a\n@b", "x" * 260 + "@b"]
)
def test_a_name_that_could_not_log_in_is_refused(email: str) -> None:
    """Basic credentials end the name at a colon, so an address with one is refused, as is an invalid address."""
    with pytest.raises(ValidationError):
        Settings.model_validate(table(email=email))


def test_one_user_twice_is_refused() -> None:
    """Two spellings of one address are one user, so two entries for it are an error."""
    users = [*table()["users"], *table(email="User@Example.org", role="admin")["users"]]
    with pytest.raises(ValidationError, match=r"User@Example\.org is there twice"):
        Settings.model_validate({"users": users})


@pytest.mark.parametrize(
    "settings",
    [
        {"realm": "other"},
        {"token_lifetime": 0},
        {"issuer": ""},
        {"algorithm": "HS256"},
        {"algorithm": "none"},
        {"login_limit_account": "often"},
        {"login_limit_address": "0/minute"},
        {"bcrypt_rounds": 4},
        table(role="root"),
        table(name="a"),
    ],
    ids=str,
)
def test_other_invalid_values_are_refused(settings: dict[str, Any]) -> None:
    """Unknown keys, and unsafe or meaningless values, are refused."""
    with pytest.raises(ValidationError):
        Settings.model_validate(settings)


def test_a_hash_is_masked_in_shown_settings() -> None:
    """Neither the settings' text nor their JSON contains a password hash."""
    settings = Settings.model_validate(table())
    assert HASH not in f"{settings!r}{settings.model_dump_json()}"
