"""The settings `[plugins.profile-template]`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from plughost.ratelimits import Limit  # noqa: TC001 - pydantic reads the annotation at run time


class Settings(BaseModel):
    """The plugin's table; the host validates it and refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    auth: Literal["none", "bearer"] = Field(
        "none", description="none: one profile for all users; bearer: a profile for each user of a token"
    )
    roles: tuple[str, ...] = Field((), description="With bearer, the roles that have access; if empty, all users have")
    rate_limit: Limit = Field("100/minute", description="Requests that a client may send")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.roles and self.auth != "bearer":
            raise ValueError('roles need auth = "bearer"')
        return self
