"""The resources below `/mylibrary`: every row of CONTRACT 3."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bcrypt
import jwt
import pytest

if TYPE_CHECKING:
    from falcon import testing

BASIC = 'Basic realm="mylibrary", charset="UTF-8"'
BEARER = 'Bearer realm="mylibrary"'
HMAC_TOKEN = jwt.encode({"sub": "admin@example.org", "roles": ["admin"]}, "x" * 32, algorithm="HS256")


def basic(credentials: bytes) -> str:
    """Return the header of HTTP Basic credentials."""
    return f"Basic {base64.b64encode(credentials).decode()}"


def hash_of(password: str) -> str:
    """Return a quick hash."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def same(first: testing.Result, second: testing.Result) -> bool:
    """Return whether two responses differ only in their request id."""
    heads = [{k: v for k, v in each.headers.items() if k != "x-request-id"} for each in (first, second)]
    return (first.status, first.content, heads[0]) == (second.status, second.content, heads[1])


@pytest.mark.parametrize("accept", [None, "application/json", "text/html", "image/png", "nonsense"])
def test_login_returns_only_the_token(client: Any, accept: str | None) -> None:
    """The body is plain text, whatever Accept says, and no cache stores it."""
    headers = {"Authorization": basic(b"user@example.org:user")} | ({"Accept": accept} if accept else {})
    answer = client.get("/setup/login", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain")
    assert answer.headers["cache-control"] == "no-store"
    assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", answer.text)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic dXNlcg",
        "Basic dXNlcg==",
        "Basic /////w==",
        "Basic é",
        "Basic " + "A" * 100_000,
        basic(b"user@example.org"),
        basic(b"user@example.org:wrong"),
        basic(b"nobody@example.org:user"),
        basic(b":"),
        basic(b"user@example.org:\xff"),
        basic(b"user@example.org:" + b"u" * 5000),
        basic(b"user@example.org:user\x00"),
        f"{basic(b'user@example.org:user')},{basic(b'user@example.org:user')}",
        f"{basic(b'user@example.org:user')} x",
        "Bearer dXNlckBleGFtcGxlLm9yZzp1c2Vy",
        "Digest username=user",
        "\x00",
    ],
)
def test_every_failed_login_gets_the_same_answer(client: Any, header: str | None) -> None:
    """Absent, malformed, wrong or unknown credentials: the same 401, down to the body."""
    answer = client.get("/setup/login", headers={"Authorization": header} if header is not None else {})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == BASIC
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert same(answer, client.login("user@example.org", "wrong"))


@pytest.mark.parametrize("scheme", ["basic", "BASIC", "bAsIc", "Basic  "])
def test_the_basic_scheme_is_case_insensitive(client: Any, scheme: str) -> None:
    """So are all scheme names (RFC 9110, 11.1), and more than one space may follow."""
    credentials = basic(b"user@example.org:user").removeprefix("Basic ")
    assert client.get("/setup/login", headers={"Authorization": f"{scheme} {credentials}"}).status_code == 200


def test_passwords_are_utf_8(make_client: Callable[..., Any]) -> None:
    """A password with a colon and non-ASCII letters is accepted, as the challenge's charset promises."""
    client = make_client(users=[{"email": "a@example.org", "password_hash": hash_of("pä:ß€"), "role": "admin"}])
    assert client.login("a@example.org", "pä:ß€").status_code == 200


def test_too_many_failures_are_refused_for_a_while(client: Any) -> None:
    """After five failures of an account from an address, even the right password must wait."""
    for _ in range(5):
        assert client.login("user@example.org", "wrong").status_code == 401
    answer = client.login("user@example.org", "user")
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert "www-authenticate" not in answer.headers
    assert client.login("admin@example.org", "admin").status_code == 200
    assert client.login("user@example.org", "user", remote_addr="192.0.2.1").status_code == 200


def test_unknown_accounts_are_throttled_equally(client: Any) -> None:
    """Throttling does not reveal which users exist."""
    statuses = [client.login("nobody@example.org", "wrong").status_code for _ in range(6)]
    assert statuses == [401] * 5 + [429]


def test_an_address_that_tries_many_accounts_is_refused(client: Any) -> None:
    """An address is refused after twenty failures; a success in between resets nothing."""
    for number in range(20):
        assert client.login(f"user{number}@example.org", "wrong").status_code == 401
        if number == 10:
            assert client.login("user@example.org", "user").status_code == 200
    assert client.login("user@example.org", "user").status_code == 429


def test_successes_are_not_counted(client: Any) -> None:
    """A client may log in any number of times, and a request without credentials is no guess."""
    for _ in range(25):
        assert client.login("user@example.org", "user").status_code == 200
        assert client.get("/setup/login").status_code == 401


def test_limits_are_settings(make_client: Callable[..., Any]) -> None:
    """The operator can allow fewer failures."""
    client = make_client(login_limit_account="1/hour")
    assert client.login("user@example.org", "wrong").status_code == 401
    assert int(client.login("user@example.org", "user").headers["retry-after"]) > 3000


@pytest.mark.parametrize(
    ("name", "path"), [("user", "/setup/secured"), ("admin", "/setup/secured"), ("admin", "/setup/secured/admin")]
)
def test_a_token_with_the_role_is_accepted(client: Any, name: str, path: str) -> None:
    """The answer names the token's user, roles, and end in UTC."""
    answer = client.with_token(path, client.token(name))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json) == {"email", "roles", "expiresAt"}
    assert (answer.json["email"], answer.json["roles"]) == (f"{name}@example.org", [name])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer.json["expiresAt"])
    ends_in = datetime.fromisoformat(answer.json["expiresAt"]) - datetime.now(UTC)
    assert timedelta(seconds=840) < ends_in <= timedelta(seconds=900)


@pytest.mark.parametrize("path", ["/setup/secured", "/setup/secured/admin"])
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Token abc", basic(b"admin@example.org:admin"), f"{basic(b'a:b')}, Bearer abc"],
)
def test_no_token_is_denied(client: Any, path: str, header: str | None) -> None:
    """Without a token, or with another scheme, the challenge names no error (RFC 6750, 3.1)."""
    answer = client.get(path, headers={"Authorization": header} if header is not None else {})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, BEARER)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/setup/secured", "/setup/secured/admin"])
@pytest.mark.parametrize("token", ["garbage", "a.b.c", "ä", "\x00", "a b", "A" * 100_000, HMAC_TOKEN])
def test_an_invalid_token_is_denied(client: Any, path: str, token: str) -> None:
    """An invalid token is answered 401 with the error of RFC 6750."""
    answer = client.with_token(path, token)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, f'{BEARER}, error="invalid_token"')


def test_two_tokens_are_invalid(client: Any) -> None:
    """Repeated headers arrive joined; neither token counts."""
    token = client.token("admin")
    assert client.with_token("/setup/secured", f"{token}, Bearer {token}").status_code == 401
    assert client.with_token("/setup/secured", f"{token},Bearer {token}").status_code == 401


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
def test_the_bearer_scheme_is_case_insensitive(client: Any, scheme: str) -> None:
    """So are all scheme names."""
    header = {"Authorization": f"{scheme} {client.token()}"}
    assert client.get("/setup/secured", headers=header).status_code == 200


def test_a_user_is_refused_by_an_administrators_resource(client: Any) -> None:
    """A user's token is 403, with the error of RFC 6750."""
    answer = client.with_token("/setup/secured/admin", client.token("user"))
    assert answer.status_code == 403
    assert answer.headers["www-authenticate"] == f'{BEARER}, error="insufficient_scope"'
    assert answer.json["detail"] == "This resource is open to the role admin only."


def test_an_answer_contains_nothing_of_an_earlier_one(client: Any) -> None:
    """A refusal leaves no challenge behind in later answers."""
    assert client.get("/setup/login").status_code == 401
    answer = client.with_token("/setup/secured", client.token())
    assert "www-authenticate" not in answer.headers


def test_a_removed_user_is_valid_until_the_token_ends(make_client: Callable[..., Any]) -> None:
    """Only the token decides: a removed user's token is valid until it expires."""
    token = make_client().token("admin")
    other = {"email": "other@example.org", "password_hash": hash_of("x"), "role": "user"}
    without = make_client(users=[other])
    assert without.login("admin@example.org", "admin").status_code == 401
    assert without.with_token("/setup/secured/admin", token).status_code == 200


def test_the_service_describes_itself_over_tls(client: Any) -> None:
    """Over TLS it shows what it is, how it was reached, and absolute addresses that work."""
    answer = client.get("/libraryAuthentification", extras={"SERVER_PROTOCOL": "HTTP/2.0"})
    base = "https://localhost:4443/mylibrary"
    assert answer.json == {
        "service": "library",
        "scheme": "https",
        "httpVersion": "2",
        "login": f"{base}/setup/login",
        "secured": f"{base}/setup/secured",
        "admin": f"{base}/setup/secured/admin",
        "jwks": f"{base}/.well-known/jwks.json",
    }
    for name in ("login", "secured", "admin", "jwks"):
        assert client.get(answer.json[name].removeprefix(base)).status_code in (200, 401)


@pytest.mark.parametrize(("protocol", "version"), [("HTTP/2", "2"), ("HTTP/1.1", "1.1"), ("HTTP/1.0", "1.0")])
def test_the_service_shows_the_version_of_http(client: Any, protocol: str, version: str) -> None:
    """HTTP/2 has no minor version; older versions have one."""
    answer = client.get("/libraryAuthentification", extras={"SERVER_PROTOCOL": protocol})
    assert answer.json["httpVersion"] == version


def test_plain_http_redirects_to_the_secure_port(client: Any) -> None:
    """It is 308 to the same path and query on the site's HTTPS port."""
    answer = client.get("/libraryAuthentification", tls=False, query_string="a=b")
    assert answer.status_code == 308
    assert answer.headers["location"] == "https://localhost:4443/mylibrary/libraryAuthentification?a=b"


def test_a_site_without_tls_is_described_over_plain_http(client: Any) -> None:
    """Without a secure port there is no redirect: the answer is 200."""
    answer = client.get("/libraryAuthentification", tls=False, secure_port=None)
    assert (answer.status_code, answer.json["scheme"]) == (200, "http")
    assert answer.json["login"] == "http://localhost:9998/mylibrary/setup/login"


def test_the_published_keys_verify_a_token(client: Any) -> None:
    """A third party can verify a token with the JWK Set."""
    answer = client.get("/.well-known/jwks.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "public, max-age=300"
    token = client.token()
    key = jwt.PyJWKSet.from_dict(answer.json)[jwt.get_unverified_header(token)["kid"]]
    assert jwt.decode(token, key, algorithms=["EdDSA"])["sub"] == "user@example.org"


@pytest.mark.parametrize("path", ["/setup/login", "/setup/secured", "/setup/secured/admin"])
@pytest.mark.parametrize("sent", ["credentials", "token", "nothing"])
def test_require_tls_refuses_plain_http(make_client: Callable[..., Any], path: str, sent: str) -> None:
    """With `require_tls`, credentials and tokens over plain HTTP are 403, with the secure port."""
    client = make_client(require_tls=True)
    token = client.token("admin")
    headers = {"credentials": basic(b"user@example.org:user"), "token": f"Bearer {token}"}
    header = {"Authorization": headers[sent]} if sent in headers else {}
    answer = client.get(path, tls=False, headers=header)
    assert answer.status_code == 403
    assert "HTTPS on port 4443" in answer.json["detail"]
    assert "no HTTPS port" in client.get(path, tls=False, secure_port=None, headers=header).json["detail"]


def test_both_ports_are_served_by_default(client: Any) -> None:
    """Without `require_tls`, login and token work over plain HTTP too."""
    token = client.login("user@example.org", "user", tls=False).text
    assert client.with_token("/setup/secured", token, tls=False).status_code == 200


def test_logins_are_logged_without_secrets(client: Any, logs: list[dict[str, Any]]) -> None:
    """The log has an event for each login, with a pseudonym for the account: the user may have typed a password."""
    client.login("user@example.org", "user")
    client.login("USER@example.org", "user")
    client.login("secret", "wrong")
    assert [(entry["event"], entry["what"], entry["outcome"]) for entry in logs] == [
        ("audit", "login", "ok"),
        ("audit", "login", "ok"),
        ("audit", "login", "refused"),
    ]
    assert [entry["who"] == client.context.pseudonym("user@example.org") for entry in logs] == [True, True, False]
    assert all(entry["where"] == "127.0.0.1" and entry["request_id"] for entry in logs)
    assert "secret" not in str(logs)
    assert "wrong" not in str(logs)
    assert "example.org" not in str(logs)
