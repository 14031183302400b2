"""The settings of the console."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """The table `[plugins.dev-console]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    link_lifetime: int = Field(600, ge=1, description="Seconds in which a link to the console can be used, once")
    session_lifetime: int = Field(43200, ge=60, description="Seconds until a browser needs another link")
    requests: int = Field(500, ge=10, le=10_000, description="How many of the last requests the console keeps")
    lines: int = Field(1000, ge=10, le=100_000, description="How many of the last lines of the log the console keeps")
    root: bool = Field(True, description="Whether / leads to the console; off lets another plugin have a route there")
