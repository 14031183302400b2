"""Checks the token of the secured resource with PyJWT, as every peer does here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jwt

_key = jwt.PyJWK.from_json(Path(os.environ["BENCH_JWK"]).read_text())


def claims_of(token: str) -> dict[str, Any]:
    """Return what a token says.

    Raises:
        jwt.InvalidTokenError: It is not valid.
    """
    return jwt.decode(
        token, _key, algorithms=["RS256"], issuer="mylibrary", options={"require": ["exp", "iat", "iss", "sub"]}
    )
