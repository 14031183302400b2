"""The settings `[plugins.profile-template]`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from plughost.ratelimits import Limit  # noqa: TC001 - pydantic reads the annotation at run time


class Settings(BaseModel):
    """The plugin's table; the host validates it and refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    auth: Literal["none", "bearer"] = Field(
        "none", description="none: one profile that all share; bearer: a profile for each user that a token names"
    )
    roles: tuple[str, ...] = Field((), description="With bearer, the roles that are let in; any user if there are none")
    rate_limit: Limit = Field("100/minute", description="Requests that a client may make")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.roles and self.auth != "bearer":
            message = 'roles are only looked at with auth = "bearer"'
            raise ValueError(message)
        return self
