"""The JSON models: the profile in each minor version, and a change (SPEC User profile, CONTRACT 7)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from plughost.http import Choice, Number, Text, absent

MAX_NAME_LENGTH: Final = 100

FitnessLevel = Choice("BEGINNER", "INTERMEDIATE", "ADVANCED")
Gender = Choice("MALE", "FEMALE", "OTHER", "UNDISCLOSED")
DarkMode = Choice("SYSTEM", "LIGHT", "DARK")

_Milliseconds = Annotated[
    int, WithJsonSchema({"type": "integer", "description": "Milliseconds since 1970.", "examples": [1790000000000]})
]
_Measure = Annotated[int | float, WithJsonSchema({"type": "number"})]


class _JSON(BaseModel):
    """Maps snake_case in Python to the SPEC's camelCase in JSON."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class ProfileChange(_JSON):
    """The body of a PUT. Absent fields stay unchanged. The host reports all invalid fields at once."""

    display_name: Annotated[str | None, Text(max_length=MAX_NAME_LENGTH)] = absent()
    height_cm: Annotated[Decimal | None, Number(exclusive_minimum=0, maximum=300)] = absent()
    weight_kg: Annotated[Decimal | None, Number(exclusive_minimum=0, maximum=700)] = absent()
    fitness_level: Annotated[str | None, FitnessLevel] = absent()
    gender: Annotated[str | None, Gender] = absent()

    def values(self) -> dict[str, Any]:
        """Return the fields that were sent, by Python name. Measures become floats, never 0."""
        sent = self.model_dump(exclude_unset=True)
        return {name: _measure(value) if isinstance(value, Decimal) else value for name, value in sent.items()}


def _measure(value: Decimal) -> float:
    return float(value) or sys.float_info.min


class SettingsJSON(_JSON):
    """The user's preferences for the app."""

    model_config = ConfigDict(title="ProfileSettings")

    use_metric_system: bool
    enable_notifications: bool
    dark_mode_preference: Annotated[str, DarkMode]
    rest_timer_duration: int = Field(description="Seconds.", examples=[60])


class ProfileJSON(_JSON):
    """A profile in version 1.0. Unknown values are null."""

    model_config = ConfigDict(title="Profile")

    user_id: str = Field(examples=["6f1c2f0e-8a55-4c1f-9d3b-2b7c1f0f6a11"])
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
    """A profile in version 1.1: `updatedAt` shows a client whether its copy is outdated."""

    model_config = ConfigDict(title="ProfileV11")

    updated_at: _Milliseconds = Field(description="When the profile was last changed.")


VIEWS: Final[Mapping[str, type[ProfileJSON]]] = {"1.0": ProfileJSON, "1.1": ProfileJSON11}
"""The profile's model in each minor version, oldest first. Add a new version here."""
