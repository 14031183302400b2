"""What goes over the wire, in pydantic, as FastAPI and Flask use it here."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field
from pydantic.alias_generators import to_camel

Text = Annotated[str, Field(max_length=255, pattern=r"\S")]
Price = Annotated[
    Decimal, Field(ge=0, max_digits=15, decimal_places=4), PlainSerializer(float, return_type=float, when_used="json")
]


class CamelModel(BaseModel):
    """Python's names here, camelCase on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, from_attributes=True)


class Product(CamelModel):
    """A product as it is sent to be created."""

    sku: Text
    name: Text
    price: Price
    stock: Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class ProductInMemory(Product):
    """A product of catalog v2."""

    @computed_field(alias="inStock")  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def in_stock(self) -> bool:
        """Whether there is any."""
        return self.stock > 0


class StoredProduct(CamelModel):
    """A product of catalog v3."""

    id: int
    sku: str
    name: str
    price: Price
    stock: int


class Draft(BaseModel):
    """A message as it is sent to be created."""

    content: Annotated[str, Field(max_length=500)]


class Message(CamelModel):
    """A message."""

    id: int
    content: str
    created_at: datetime


class Identity(CamelModel):
    """Whom a token names."""

    email: str
    roles: list[str]
    expires_at: datetime


class Preferences(CamelModel):
    """How a user likes the app."""

    use_metric_system: bool
    enable_notifications: bool
    dark_mode_preference: str
    rest_timer_duration: int


class Profile(CamelModel):
    """A user's profile."""

    user_id: str
    display_name: str
    email: str | None
    profile_image_url: str | None
    date_joined: int
    fitness_level: str
    height_cm: float | None
    weight_kg: float | None
    date_of_birth: int | None
    gender: str
    is_premium: bool
    settings: Preferences
    updated_at: int


class Envelope(BaseModel):
    """What the profile is sent in."""

    status: str = "success"
    data: Profile
    code: int = 200
    timestamp: int


def profile_of(row: Any) -> Profile:
    """Return the profile of a row, whose settings are columns."""
    fields = {name: getattr(row, name) for name in Profile.model_fields if name != "settings"}
    return Profile(**fields, settings=Preferences.model_validate(row))
