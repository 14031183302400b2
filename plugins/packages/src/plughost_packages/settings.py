"""The settings of the plugin: `[plugins.packages]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from plughost_packages.attesting import PUBLISHER


def _builder(value: str) -> str:
    if PUBLISHER.fullmatch(value) is None:
        raise ValueError(f"must be like github:OWNER/REPOSITORY/WORKFLOW.yml, not {value!r}")
    return value


class Settings(BaseModel):
    """Where to look for what is installed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index_url: SecretStr | None = Field(
        None,
        description="Index to search if no option names one; no other is searched, unless pip's configuration names it",
        examples=["https://packages.example.org/simple"],
    )
    find_links: tuple[str, ...] = Field((), description="Folders and pages with distributions to search as well")
    attested_by: tuple[Annotated[str, AfterValidator(_builder)], ...] = Field(
        (),
        description="Accepted builders of attested files: `github:OWNER/REPOSITORY/WORKFLOW.yml` or `gitlab:...`; "
        "by default any",
    )
    require_attestations: bool = Field(False, description="Refuse files without a valid attestation beside them")
