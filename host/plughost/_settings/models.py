"""Tables of the settings of which each is for one part of the host.

They are apart from those parts, which import what only serving needs: every command reads the settings, and most only
talk to a host that runs.
"""

from __future__ import annotations

import re
from typing import Final, Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, field_validator, model_validator

Encoding = Literal["zstd", "gzip"]

MEMORY: Final = "memory"
_REDIS: Final = ("redis://", "rediss://", "redis+unix://")
_ORIGIN: Final = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")


class CompressionSettings(BaseModel):
    """Which encodings responses may be sent in: none, by default."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    encodings: tuple[Encoding, ...] = Field((), description="zstd and gzip, the one to prefer first; none to be off")
    minimum_size: ByteSize = Field(ByteSize(1024), ge=0, description="Bodies shorter than this are sent as they are")


class CORSSettings(BaseModel):
    """Which web pages of other origins may use the site: none, by default."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    origins: tuple[str, ...] = Field((), description="Origins such as https://app.example.org, or * alone for all")
    credentials: bool = Field(False, description="Let pages of these origins send cookies and HTTP authentication")
    expose: tuple[str, ...] = Field((), description="Response headers that pages may read beside the host's own")
    max_age: int = Field(600, ge=0, le=86400, description="Seconds that a browser may remember a preflight")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.origins == ("*",):
            if self.credentials:
                message = 'credentials = true needs origins by name: with origins = ["*"] any web page could use them'
                raise ValueError(message)
            return self
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                message = (
                    f"{origin!r} is no origin: write scheme, host in lower case and, unless it is the scheme's own,"
                    ' port, such as "https://app.example.org", or "*" alone'
                )
                raise ValueError(message)
        return self


class SecurityHeadersSettings(BaseModel):
    """Headers for browsers. A header that a plugin sets itself is left as it is; an empty text sends none."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    enabled: bool = Field(False, description="Send them; X-Content-Type-Options is always sent")
    hsts: int = Field(0, ge=0, description="Seconds that browsers shall use HTTPS only, sent over HTTPS; 0 for none")
    frame_options: Literal["DENY", "SAMEORIGIN", ""] = Field("DENY", description="X-Frame-Options")
    content_security_policy: str = Field(
        "default-src 'none'; frame-ancestors 'none'", description="Content-Security-Policy"
    )
    referrer_policy: str = Field("no-referrer", description="Referrer-Policy")
    permissions_policy: str = Field("", description="Permissions-Policy")
    cross_origin_opener_policy: str = Field("same-origin", description="Cross-Origin-Opener-Policy")
    cross_origin_resource_policy: str = Field("", description="Cross-Origin-Resource-Policy")


class RateLimitSettings(BaseModel):
    """Where the rate limits of all plugins are counted."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)

    storage: SecretStr = Field(
        SecretStr(MEMORY), description="memory, or a redis:// URL that several hosts share to count together"
    )
    on_storage_failure: Literal["allow", "refuse"] = Field(
        "allow", description="Without Redis, let requests through uncounted, or answer them 503"
    )
    timeout: float = Field(0.5, gt=0, le=30, description="Seconds to wait for Redis before it counts as failed")

    @property
    def shared(self) -> bool:
        """Whether several hosts count together, in Redis."""
        return self.storage.get_secret_value() != MEMORY

    @field_validator("storage")
    @classmethod
    def _check(cls, storage: SecretStr) -> SecretStr:
        url = storage.get_secret_value()
        if url == MEMORY:
            return storage
        if not url.startswith(_REDIS):
            message = f"must be {MEMORY} or a URL that starts with {', '.join(_REDIS)}"
            raise ValueError(message)
        return storage
