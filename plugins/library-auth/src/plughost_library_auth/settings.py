"""The settings `[plugins.library-auth]`: users, tokens and login limits."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

import bcrypt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from plughost.ratelimits import Limit  # noqa: TC001 - pydantic reads the annotation at run time

Algorithm = Literal["RS256", "ES256", "EdDSA"]
Role = Literal["user", "admin"]

_HASH = re.compile(r"(?P<salt>\$2[aby]\$(?P<rounds>\d\d)\$[./A-Za-z0-9]{22})[./A-Za-z0-9]{31}", re.ASCII)
# A colon ends the user name in Basic credentials (RFC 7617), so an address with one could never log in. Lone surrogates
# are the bytes of an argument that are not text.
_EMAIL = re.compile(r"[^\s:@\x00-\x1f\x7f\ud800-\udfff]+@[^\s:@\x00-\x1f\x7f\ud800-\udfff]+")
_MAX_ROUNDS = 16
_MAX_EMAIL_LENGTH = 254
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def _email(value: str) -> str:
    if not is_email_address(value):
        raise ValueError("must be an e-mail address, without white space, control characters and colons")
    return value


class User(BaseModel):
    """A user of the library.

    Attributes:
        email: The login name; `account_key` says which spellings are the same user.
        password_hash: A bcrypt hash (`$2a$`, `$2b$` or `$2y$`, at most 16 rounds).
        role: The role in the user's tokens.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    email: Annotated[str, Field(max_length=_MAX_EMAIL_LENGTH), AfterValidator(_email)]
    password_hash: SecretStr
    role: Role

    @property
    def key(self) -> str:
        """The account's key, the same for all spellings of the e-mail address."""
        return account_key(self.email)

    @property
    def rounds(self) -> int:
        """The cost of the password hash: 2 to this power rounds."""
        return int(self.password_hash.get_secret_value()[4:6])

    @model_validator(mode="after")
    def _check_hash(self) -> Self:
        if not _is_bcrypt(self.password_hash.get_secret_value()):
            raise ValueError(
                f"password_hash of {self.email} is not a bcrypt hash of at most {_MAX_ROUNDS} rounds;"
                " leave the user out until `plughost library-auth hash-password` has made one"
            )
        return self


class Settings(BaseModel):
    """The plugin's table."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    users: tuple[User, ...] = Field(
        (),
        description="Users who may log in, each a table [[plugins.library-auth.users]] with email, password_hash, role",
    )
    token_lifetime: int = Field(900, ge=1, le=2_592_000, description="Seconds that a token is valid")
    issuer: str | None = Field(
        None,
        min_length=1,
        examples=["https://library.example.org/mylibrary"],
        description="The claim `iss`; tokens of another issuer are refused. The default is the service's address on "
        "the HTTPS port of localhost, which is not checked, because ports change",
    )
    audience: str | None = Field(
        None,
        min_length=1,
        examples=["library"],
        description="The claim `aud` (RFC 9068); if set, tokens for another audience or for none are refused",
    )
    algorithm: Algorithm = Field(
        "RS256", description="Algorithm that signs new tokens; a change makes a new key, and old tokens stay valid"
    )
    require_tls: bool = Field(False, description="Refuse credentials and tokens over plain HTTP")
    login_limit_account: Limit = Field(
        "5/minute", description="Failed logins of one account from one address, such as `5/minute`"
    )
    login_limit_address: Limit = Field("20/minute", description="Failed logins from one address, whatever the account")
    login_limit_anywhere: Limit = Field(
        "90/hour", description="Failed logins of one account from all addresses together"
    )
    login_limit_known: Limit = Field(
        "10/hour", description="Further failed logins of one account, from addresses with an earlier successful login"
    )
    bcrypt_rounds: int = Field(
        12,
        ge=10,
        le=_MAX_ROUNDS,
        description="The cost of the hashes that `hash-password` makes: 2 to this power rounds",
    )

    @model_validator(mode="after")
    def _refuse_duplicates(self) -> Self:
        seen: set[str] = set()
        for user in self.users:
            if user.key in seen:
                raise ValueError(f"user {user.email} is there twice (A to Z and a to z are the same)")
            seen.add(user.key)
        return self


def account_key(email: str) -> str:
    """Return the account's key: the e-mail address with A to Z in lower case.

    Other characters stay. Unicode case folding would give different addresses the same key: U+017F would become
    an s, U+212A a k.
    """
    return email.translate(_LOWER)


def is_email_address(email: str) -> bool:
    """Return whether a user can have this e-mail address."""
    return len(email) <= _MAX_EMAIL_LENGTH and _EMAIL.fullmatch(email) is not None


def _is_bcrypt(text: str) -> bool:
    match = _HASH.fullmatch(text)
    if match is None or not 4 <= int(match["rounds"]) <= _MAX_ROUNDS:
        return False
    try:
        # bcrypt checks that the spare bits of the salt's last character are zero. At cost 4 this takes about 1 ms.
        bcrypt.hashpw(b"", f"$2b$04${match['salt'][7:]}".encode())
    except ValueError:
        return False
    return True
