"""The settings of the console."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """The table `[plugins.dev-console]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    link_lifetime: int = Field(600, ge=1, description="Seconds until an unused link to the console expires")
    session_lifetime: int = Field(43200, ge=60, description="Seconds until a browser's session expires")
    requests: int = Field(500, ge=10, le=10_000, description="Number of recent requests to keep")
    lines: int = Field(1000, ge=10, le=100_000, description="Number of recent log lines to keep")
    root: bool = Field(True, description="Redirect / to the console; turn it off for another plugin's route there")
