"""The settings `[plugins.openapi]`: what is served, and which addresses the description names."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Server = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#]+[^\s?#]*$")]


class Settings(BaseModel):
    """The plugin's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool | None = Field(None, description="Serve /q/openapi; by default with --dev only")
    swagger_ui: bool | None = Field(None, description="Serve /q/swagger-ui too; by default with --dev only")
    servers: dict[str, tuple[Server, ...]] = Field(
        {}, description="Addresses by site that clients use instead of the listeners' own, such as those of a proxy"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.swagger_ui and self.enabled is False:
            message = "swagger_ui = true needs the description that enabled = false takes away"
            raise ValueError(message)
        return self

    def serves_description(self, *, dev: bool) -> bool:
        """Whether `/q/openapi` is served.

        Args:
            dev: Whether the host runs with `--dev`, here and below.
        """
        return (dev or bool(self.swagger_ui)) if self.enabled is None else self.enabled

    def serves_swagger_ui(self, *, dev: bool) -> bool:
        """Whether `/q/swagger-ui` is served."""
        return (dev and self.enabled is not False) if self.swagger_ui is None else self.swagger_ui
