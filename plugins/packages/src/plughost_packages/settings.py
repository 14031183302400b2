"""The settings of the plugin: `[plugins.packages]`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class Settings(BaseModel):
    """Where to look for what is installed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index_url: SecretStr | None = Field(
        None, description="Index to look in where no option names one; no other is, unless pip's own configuration does"
    )
    find_links: tuple[str, ...] = Field((), description="Folders and pages with distributions to look in, too")
