"""Settings of rate limits: how a limit is written, and the table `[rate_limits]`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Final, Literal

import limits
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

MEMORY: Final = "memory"
_REDIS: Final = ("redis://", "rediss://", "redis+unix://")


def _limit(text: str) -> str:
    parsed = limits.parse_many(text)  # its ValueError says what is wrong
    if len(parsed) != 1 or parsed[0].amount < 1 or parsed[0].get_expiry() < 1:
        message = "must be one limit that allows at least one, such as 100/minute"
        raise ValueError(message)
    return text


Limit = Annotated[str, AfterValidator(_limit)]
"""A limit in a plugin's settings: an amount per time, such as `100/minute` or `5 per 2 hours`."""


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

    @field_validator("storage")
    @classmethod
    def _check(cls, storage: SecretStr) -> SecretStr:
        url = storage.get_secret_value()
        if url == MEMORY:
            return storage
        if not url.startswith(_REDIS):
            message = f"must be {MEMORY} or a URL that starts with {', '.join(_REDIS)}"
            raise ValueError(message)
        if find_spec("redis") is None:
            message = "Redis needs a package that is not installed: run pip install 'plughost[redis]'"
            raise ValueError(message)
        return storage
