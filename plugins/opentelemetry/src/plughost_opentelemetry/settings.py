"""The settings of the OpenTelemetry plugin."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Settings(BaseModel):
    """The table `[plugins.opentelemetry]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str = Field(
        "",
        description="URL to send traces to by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces;"
        " if empty, nothing is traced, except under the agent",
    )
    sample: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Fraction of requests, jobs and other spans to trace, of those that belong to no trace yet",
    )
    service: str = Field("plughost", min_length=1, description="The name of the service in traces")

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, endpoint: str) -> str:
        with suppress(ValueError):  # an invalid IPv6 address or port
            if not endpoint or (re.fullmatch(r"https?://[^\s/?#:]\S*", endpoint) and urlsplit(endpoint).port != 0):
                return endpoint
        raise ValueError('must be an http:// or https:// URL, such as "http://127.0.0.1:4318/v1/traces"')
