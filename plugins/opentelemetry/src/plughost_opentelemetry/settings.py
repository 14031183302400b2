"""The settings of the OpenTelemetry plugin."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """The table `[plugins.opentelemetry]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
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
