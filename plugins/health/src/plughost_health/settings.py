"""The settings of the health plugin."""

from __future__ import annotations

import re

from pydantic import BaseModel, ByteSize, ConfigDict, Field, field_validator


class Settings(BaseModel):
    """The table `[plugins.health]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    public: bool = Field(
        False, description="Show everyone the results of the checks; otherwise strangers see only UP or DOWN"
    )
    timeout: float = Field(
        3.0, gt=0, le=3600, description="Seconds after which a check that has not returned counts as down"
    )
    cache: float = Field(1.0, ge=0, le=3600, description="Seconds for which the result of a check is reused")
    minimum_disk: ByteSize = Field(
        ByteSize(100 * 1024 * 1024),
        description="Free space on the data folder's disk below which the host is not ready",
    )
    minimum_certificate_days: int = Field(
        0, ge=0, description="Days that the certificate must still be valid for the host to be ready"
    )

    @field_validator("minimum_disk", mode="before")
    @classmethod
    def _check_size(cls, value: object) -> object:
        # pydantic reads the beginning of a text alone: it takes "1,5 GB" for a byte.
        if isinstance(value, str) and re.fullmatch(r"\s*[\d_]*\.?\d+\s*[A-Za-z]*\s*", value) is None:
            raise ValueError('must be a size in bytes, or one with a unit, such as "10 MB"')
        return value
