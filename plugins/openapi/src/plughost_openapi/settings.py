"""The settings `[plugins.openapi]`."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def _server(value: str) -> str:
    with suppress(ValueError):  # an invalid IPv6 address or port
        if re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", value) and urlsplit(value).port != 0:
            return value
    raise ValueError('must be an http:// or https:// URL without query, such as "https://api.example.org/shop"')


Server = Annotated[str, AfterValidator(_server)]


class Contact(BaseModel):
    """The contact for questions about the API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = Field(None, description="Name of a person or team to contact", examples=["The API team"])
    url: str | None = Field(None, description="URL of a contact page", examples=["https://api.example.org"])
    email: str | None = Field(None, description="E-mail address to contact", examples=["api@example.org"])


class License(BaseModel):
    """The licence of the API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str | None = Field(None, description="Name of the licence", examples=["MIT"])
    url: str | None = Field(
        None, description="URL of the licence's text", examples=["https://opensource.org/license/mit"]
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.url and not self.name:
            raise ValueError("url needs name: OpenAPI has no licence without a name")
        return self


class About(BaseModel):
    """General information about the API, for the Info Object."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str | None = Field(
        None, description="Name of the API; by default `plughost: ` and the site's name", examples=["The shop"]
    )
    description: str | None = Field(
        None, description="Purpose of the API, in CommonMark", examples=["Products and orders."]
    )
    terms_of_service: str | None = Field(
        None,
        serialization_alias="termsOfService",
        description="URL of the terms of service",
        examples=["https://api.example.org/terms"],
    )
    contact: Contact = Contact()
    license: License = License()

    def info(self) -> dict[str, Any]:
        """Return the members of the Info Object that are set."""
        return {key: value for key, value in self.model_dump(by_alias=True, exclude_none=True).items() if value}


class Settings(BaseModel):
    """The plugin's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool | None = Field(None, description="Serve /q/openapi; by default with --dev only", examples=[True])
    swagger_ui: bool | None = Field(
        None, description="Serve /q/swagger-ui too; by default with --dev only", examples=[True]
    )
    servers: dict[str, tuple[Server, ...]] = Field(
        {}, description="URLs for clients by site, instead of the listeners' own, such as a proxy's"
    )
    about: About = About()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.swagger_ui and self.enabled is False:
            raise ValueError("swagger_ui = true needs the description that enabled = false takes away")
        return self

    def serves_description(self, *, dev: bool) -> bool:
        """Whether `/q/openapi` is served. `dev` is whether the host runs with `--dev`."""
        return (dev or bool(self.swagger_ui)) if self.enabled is None else self.enabled

    def serves_swagger_ui(self, *, dev: bool) -> bool:
        """Whether `/q/swagger-ui` is served."""
        return (dev and self.enabled is not False) if self.swagger_ui is None else self.swagger_ui
