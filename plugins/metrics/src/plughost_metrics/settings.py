"""The settings of the metrics plugin."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """The table `[plugins.metrics]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    public: bool = Field(
        False, description="Show the metrics to everyone, not only to this machine and on the site `admin`"
    )
