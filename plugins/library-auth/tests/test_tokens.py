"""What tokens contain, and every way in which one is invalid."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from plughost_library_auth.keyring import KEY_FILE, KeyRing
from plughost_library_auth.keys import SigningKey
from plughost_library_auth.tokens import InvalidToken, Tokens

if TYPE_CHECKING:
    from plughost_library_auth.settings import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")


def encode(part: Any) -> str:
    """Return a part of a token."""
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@pytest.fixture(params=ALGORITHMS)
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> KeyRing:
    """Signing keys for each algorithm."""
    return KeyRing(tmp_path, algorithm=request.param, lifetime=900)


@pytest.fixture
def tokens(keys: KeyRing) -> Tokens:
    """The object that issues and verifies tokens with these keys."""
    return Tokens(keys, issuer="mylibrary", lifetime=900)


@pytest.fixture
def sign(keys: KeyRing) -> Callable[..., str]:
    """Sign claims that are valid except for the given ones."""

    def sign(**changes: Any) -> str:
        now = int(time.time())
        good = {"iss": "mylibrary", "sub": "user@example.org", "roles": ["user"], "iat": now, "exp": now + 60}
        header = changes.pop("header", {})
        claims = {name: value for name, value in {**good, **changes}.items() if value != "absent"}
        key = keys.signing_key()
        payload = json.dumps(claims).encode()
        return jwt.PyJWS().encode(payload, key.private_key, algorithm=key.algorithm, headers={"kid": key.kid, **header})

    return sign


def test_a_token_contains_user_and_expiry(tokens: Tokens) -> None:
    """Verifying a fresh token returns its user, roles and end, in UTC."""
    before = int(time.time())
    claims = tokens.verify(tokens.issue("user@example.org", ["user"]))
    assert (claims.name, claims.roles) == ("user@example.org", frozenset({"user"}))
    assert claims.expires.tzinfo is UTC
    assert before + 900 <= claims.expires.timestamp() <= time.time() + 900


def test_a_token_carries_the_claims_of_the_contract(tokens: Tokens, keys: KeyRing) -> None:
    """A client that reads JWTs finds the registered claims, the roles and the key's name."""
    token = tokens.issue("user@example.org", ["user"])
    claims = jwt.decode(token, options={"verify_signature": False})
    assert set(claims) == {"iss", "sub", "roles", "iat", "nbf", "exp", "jti"}
    assert (claims["roles"], claims["exp"] - claims["iat"], claims["nbf"]) == (["user"], 900, claims["iat"])
    header = jwt.get_unverified_header(token)
    assert (header["kid"], header["alg"]) == (keys.signing_key().kid, keys.signing_key().algorithm)
    assert header["typ"] == "at+jwt"


def test_all_tokens_differ(tokens: Tokens) -> None:
    """Two tokens of one second differ by their id."""
    assert tokens.issue("user@example.org", ["user"]) != tokens.issue("user@example.org", ["user"])


def test_a_third_party_verifies_with_the_published_key(tokens: Tokens, keys: KeyRing) -> None:
    """PyJWT accepts the token with only the JWK Set."""
    token = tokens.issue("user@example.org", ["user"])
    published = jwt.PyJWKSet.from_dict({"keys": [key.jwk() for key in keys.public_keys()]})
    key = published[jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(token, key, algorithms=[str(key.algorithm_name)], issuer="mylibrary")
    assert claims["sub"] == "user@example.org"


def test_a_token_survives_rotations(tokens: Tokens, keys: KeyRing) -> None:
    """A token of the key before the previous one is still valid."""
    token = tokens.issue("user@example.org", ["user"])
    keys.rotate()
    keys.rotate()
    assert tokens.verify(token).name == "user@example.org"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": "absent"},
        {"exp": None},
        {"exp": "soon"},
        {"exp": 10**30},
        {"iat": "absent"},
        {"iat": 10**11},
        {"nbf": 10**11},
        {"sub": "absent"},
        {"sub": 7},
        {"iss": "absent"},
        {"iss": "another"},
        {"iss": "my"},
        {"iss": ["mylibrary"]},
        {"roles": "absent"},
        {"roles": "user"},
        {"roles": ["user", 1]},
        {"roles": {"user": True}},
        {"roles": None},
        {"aud": "somebody else"},
    ],
    ids=str,
)
def test_invalid_signed_claims_are_refused(tokens: Tokens, sign: Callable[..., str], changes: dict[str, Any]) -> None:
    """A valid signature does not help if a claim is missing, past, future or of the wrong type."""
    assert tokens.verify(sign()).roles == {"user"}
    with pytest.raises(InvalidToken):
        tokens.verify(sign(**changes))


@pytest.mark.parametrize("claim", ["iat", "nbf"])
def test_a_clock_may_be_a_minute_fast(tokens: Tokens, sign: Callable[..., str], claim: str) -> None:
    """A token from a host whose clock is 50 s fast is accepted; at 70 s it is not."""
    now = int(time.time())
    assert tokens.verify(sign(**{claim: now + 50})).roles == {"user"}
    with pytest.raises(InvalidToken):
        tokens.verify(sign(**{claim: now + 70}))


def test_a_tokens_end_has_no_leeway(tokens: Tokens, sign: Callable[..., str]) -> None:
    """A token is invalid one second after its end."""
    with pytest.raises(InvalidToken, match="expired"):
        tokens.verify(sign(exp=int(time.time()) - 1))


def test_a_token_of_another_type_is_refused(tokens: Tokens, sign: Callable[..., str]) -> None:
    """Access tokens are accepted, with either of their type names, and nothing else that our key may have signed."""
    for good in ("at+jwt", "AT+JWT", "application/at+jwt", "JWT"):
        assert tokens.verify(sign(header={"typ": good})).roles == {"user"}
    for other in ("logout+jwt", "dpop+jwt", "x"):
        with pytest.raises(InvalidToken):
            tokens.verify(sign(header={"typ": other}))


def test_an_audience_is_issued_and_required(keys: KeyRing, tokens: Tokens, sign: Callable[..., str]) -> None:
    """With a configured audience, tokens contain it, and tokens without it are refused."""
    library = Tokens(keys, issuer="mylibrary", lifetime=900, audience="https://library.example.org")
    token = library.issue("user@example.org", ["user"])
    assert jwt.decode(token, options={"verify_signature": False})["aud"] == "https://library.example.org"
    assert library.verify(token).name == "user@example.org"
    for other in (sign(), sign(aud="https://other.example.org")):
        with pytest.raises(InvalidToken):
            library.verify(other)
    with pytest.raises(InvalidToken):
        tokens.verify(token)


def test_a_huge_token_is_not_decoded(tokens: Tokens, sign: Callable[..., str]) -> None:
    """Beyond 8 KiB nothing is decoded or verified, even with a valid signature."""
    assert tokens.verify(sign(more="x" * 5000)).roles == {"user"}
    with pytest.raises(InvalidToken, match="not a compact JWS"):
        tokens.verify(sign(more="x" * 8192))


@pytest.mark.parametrize("payload", [b"[]", b"null", b"{", b"\xff", b"[" * 3000])
def test_a_signed_payload_that_is_no_object_is_refused(tokens: Tokens, keys: KeyRing, payload: bytes) -> None:
    """Only a signed JSON object is a set of claims."""
    key = keys.signing_key()
    token = jwt.PyJWS().encode(payload, key.private_key, algorithm=key.algorithm, headers={"kid": key.kid})
    with pytest.raises(InvalidToken):
        tokens.verify(token)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "garbage",
        "ä.ö.ü",
        "\x00",
        "a.b.c.d",
        "A" * 100_000,
        f"{encode({'alg': 'RS256'})}.{encode({})}.c2ln",
        f"{encode({'alg': 'RS256', 'kid': 7})}.{encode({})}.c2ln",
        f"{encode({'alg': 'RS256', 'kid': 'unknown'})}.{encode({})}.c2ln",
        f"{encode({'alg': 'RS256', 'kid': ['a']})}.{encode({})}.c2ln",
        f"{encode(b'[' * 5000)}.{encode({})}.c2ln",
        f"{encode(b'1' * 5000)}.{encode({})}.c2ln",
        f"{encode(b'null')}.{encode({})}.c2ln",
    ],
    ids=lambda token: repr(token[:24]),
)
def test_garbage_is_refused(tokens: Tokens, token: str) -> None:
    """It raises the error for an invalid token, and no other."""
    with pytest.raises(InvalidToken):
        tokens.verify(token)


def test_an_unsigned_token_is_refused(tokens: Tokens, keys: KeyRing) -> None:
    """The algorithm `none` is refused, with an empty signature and with another one."""
    _, payload, signature = tokens.issue("admin@example.org", ["admin"]).split(".")
    for name in ("none", "None", "NONE"):
        header = encode({"alg": name, "typ": "JWT", "kid": keys.signing_key().kid})
        for forged in (f"{header}.{payload}.", f"{header}.{payload}.{signature}"):
            with pytest.raises(InvalidToken):
                tokens.verify(forged)


def test_the_public_key_is_not_used_as_an_hmac_secret(tokens: Tokens, keys: KeyRing) -> None:
    """A token signed by HS256 with the published key as its secret is refused."""
    key = keys.signing_key()
    pem = key.public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encode({'alg': 'HS256', 'kid': key.kid})}.{tokens.issue('a@example.org', ['admin']).split('.')[1]}"
    forged = f"{signed}.{encode(hmac.digest(pem, signed.encode(), 'sha256'))}"
    with pytest.raises(InvalidToken):
        tokens.verify(forged)


def test_a_changed_payload_is_refused(tokens: Tokens) -> None:
    """A user can't give itself another role."""
    header, payload, signature = tokens.issue("user@example.org", ["user"]).split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    with pytest.raises(InvalidToken):
        tokens.verify(f"{header}.{encode({**claims, 'roles': ['admin']})}.{signature}")


def test_every_changed_character_of_the_signature_is_refused(tokens: Tokens) -> None:
    """Other encodings of a signature are invalid, too, even if decoders ignore the changed bits."""
    token = tokens.issue("user@example.org", ["user"])
    for last in set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") - {token[-1]}:
        with pytest.raises(InvalidToken):
            tokens.verify(token[:-1] + last)
    for forged in (token + "=", token + "\n", token + "!", token + " ", token[:-1]):
        with pytest.raises(InvalidToken):
            tokens.verify(forged)


def test_a_token_of_another_host_is_refused(tokens: Tokens, tmp_path: Path) -> None:
    """Another host's key is unknown here, under its own name and under ours."""
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = KeyRing(other_folder, algorithm="EdDSA", lifetime=900)
    with pytest.raises(InvalidToken):
        tokens.verify(Tokens(other, issuer="mylibrary", lifetime=900).issue("user@example.org", ["admin"]))


def test_a_token_expires(keys: KeyRing) -> None:
    """After its lifetime a token is refused, whatever its signature."""
    late = Tokens(keys, issuer="mylibrary", lifetime=-1)
    with pytest.raises(InvalidToken, match="expired"):
        late.verify(late.issue("user@example.org", ["user"]))


def test_a_token_that_was_valid_expires(
    tokens: Tokens, sign: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That its signature was verified before does not prolong a token."""
    token = sign()
    tokens.verify(token)
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(InvalidToken, match="expired"):
        tokens.verify(token)


def test_a_token_that_was_valid_is_refused_if_the_clock_is_set_back(
    tokens: Tokens, sign: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a token that was issued by a clock years ahead would be valid for years."""
    token = sign()
    tokens.verify(token)
    earlier = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: earlier)
    with pytest.raises(InvalidToken, match="not yet valid"):
        tokens.verify(token)


def test_a_token_that_was_valid_needs_its_key(
    tokens: Tokens, keys: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the file has another key, no token of the old one is valid, not even with the old one's name."""
    token = tokens.issue("user@example.org", ["admin"])
    tokens.verify(token)
    old = keys.signing_key()
    other = SigningKey.generate(old.algorithm, 900).model_copy(update={"kid": old.kid})
    (tmp_path / KEY_FILE).write_text(f"[{other.model_dump_json()}]")
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    with pytest.raises(InvalidToken, match="Signature"):
        tokens.verify(token)


def test_a_verified_signature_is_remembered(tokens: Tokens) -> None:
    """A valid one is verified once, an invalid one each time."""
    token = tokens.issue("user@example.org", ["user"])
    with patch("jwt.decode", wraps=jwt.decode) as decode:
        assert tokens.verify(token) == tokens.verify(token)
        assert decode.call_count == 1
        for _ in range(2):
            with pytest.raises(InvalidToken):
                tokens.verify(f"{token[:-4]}AAAA")
        assert decode.call_count == 3
