"""The settings of the plugin: `[plugins.packages]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from plughost_packages.attesting import PUBLISHER


class Settings(BaseModel):
    """Where to find distributions, and whose to accept."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index_url: SecretStr | None = Field(
        None,
        description="Package index to search if no option names one; if unset, the one of pip's configuration, if any",
        examples=["https://packages.example.org/simple"],
    )
    find_links: tuple[str, ...] = Field((), description="Additional folders and pages with distributions to search")
    attested_by: tuple[Annotated[str, Field(pattern=f"^{PUBLISHER.pattern}$")], ...] = Field(
        (),
        description="Accepted publishers of attestations: `github:OWNER/REPOSITORY/WORKFLOW.yml`, or "
        "`gitlab:...`; any publisher by default",
    )
    require_attestations: bool = Field(False, description="Refuse files without a valid attestation next to them")
