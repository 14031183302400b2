"""What goes over the wire: the profile in each minor version, and a change of it (SPEC User profile, CONTRACT 7)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from plughost.http import Choice, Number, Text, absent

LONGEST_NAME: Final = 100

FitnessLevel = Choice("BEGINNER", "INTERMEDIATE", "ADVANCED")
Gender = Choice("MALE", "FEMALE", "OTHER", "UNDISCLOSED")
DarkMode = Choice("SYSTEM", "LIGHT", "DARK")

_Milliseconds = Annotated[
    int, WithJsonSchema({"type": "integer", "description": "Milliseconds since 1970.", "examples": [1790000000000]})
]
_Measure = Annotated[int | float, WithJsonSchema({"type": "number"})]


class _JSON(BaseModel):
    """Python's names here, the SPEC's camelCase on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class ProfileChange(_JSON):
    """A PUT: whatever is in it changes, what is absent stays. The host checks it, all fields at once."""

    display_name: Annotated[str | None, Text(max_length=LONGEST_NAME)] = absent()
    height_cm: Annotated[Decimal | None, Number(exclusive_minimum=0, maximum=300)] = absent()
    weight_kg: Annotated[Decimal | None, Number(exclusive_minimum=0, maximum=700)] = absent()
    fitness_level: Annotated[str | None, FitnessLevel] = absent()
    gender: Annotated[str | None, Gender] = absent()

    def values(self) -> dict[str, Any]:
        """Return the fields that were sent, by Python's name; measures as the store keeps them, and never 0."""
        sent = self.model_dump(exclude_unset=True)
        return {name: _measure(value) if isinstance(value, Decimal) else value for name, value in sent.items()}


def _measure(value: Decimal) -> float:
    return float(value) or sys.float_info.min


class SettingsJSON(_JSON):
    """How a user likes the app."""

    model_config = ConfigDict(title="ProfileSettings")

    use_metric_system: bool
    enable_notifications: bool
    dark_mode_preference: Annotated[str, DarkMode]
    rest_timer_duration: int = Field(description="Seconds.", examples=[60])


class ProfileJSON(_JSON):
    """A profile in version 1.0. What a user never told is null."""

    model_config = ConfigDict(title="Profile")

    user_id: str = Field(examples=["user@example.org"])
    display_name: str = Field(examples=["Alex"])
    email: str | None = Field(examples=["user@example.org"])
    profile_image_url: str | None = Field(examples=["https://images.example.org/alex.png"])
    date_joined: _Milliseconds
    fitness_level: Annotated[str, FitnessLevel]
    height_cm: _Measure | None
    weight_kg: _Measure | None
    date_of_birth: _Milliseconds | None
    gender: Annotated[str, Gender]
    is_premium: bool
    settings: SettingsJSON


class ProfileJSON11(ProfileJSON):
    """A profile in version 1.1: a client sees whether its copy is out of date."""

    model_config = ConfigDict(title="ProfileV11")

    updated_at: _Milliseconds = Field(description="When the profile was last changed.")


VIEWS: Final[Mapping[str, type[ProfileJSON]]] = MappingProxyType({"1.0": ProfileJSON, "1.1": ProfileJSON11})
"""The minor versions, oldest first, and what a profile looks like in each. A new version is a new line here."""
