"""The settings of the plugin: `[plugins.packages]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from plughost_packages.attesting import PUBLISHER


class Settings(BaseModel):
    """Where to look for what is installed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index_url: SecretStr | None = Field(
        None,
        description="Index to look in where no option names one; no other is, unless pip's own configuration does",
        examples=["https://packages.example.org/simple"],
    )
    find_links: tuple[str, ...] = Field((), description="Folders and pages with distributions to look in, too")
    attested_by: tuple[Annotated[str, Field(pattern=f"^{PUBLISHER.pattern}$")], ...] = Field(
        (),
        description="Who may have built what has an attestation: `github:OWNER/REPOSITORY/WORKFLOW.yml`, or "
        "`gitlab:...`; anybody by default",
    )
    require_attestations: bool = Field(False, description="Refuse files without a valid attestation beside them")
