"""Schemas of models: their names, and models that can't be described."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, create_model

from plughost_openapi.schemas import Schemas

T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    """A model that contains another."""

    content: T


class Lid(BaseModel):
    """A model in a box."""

    colour: str = "red"


class Priced(BaseModel):
    """A model with a Decimal that has no rule of the host."""

    price: Decimal


class Opaque:
    """A type that pydantic does not know."""


def test_models_of_one_name_are_distinguished_by_their_package() -> None:
    """Two plugins may have models of the same name; both are described, with their packages in the names."""
    one = create_model("Thing", __module__="plughost_ink.plugin", size=(int, 1))
    other = create_model("Thing", __module__="plughost_red_ink.plugin", size=(str, ""))
    schemas = Schemas([(one, "serialization"), (other, "serialization")])
    assert schemas.components.keys() == {"InkThing", "RedInkThing"}
    assert schemas.of(other, "serialization") == {"$ref": "#/components/schemas/RedInkThing"}


def test_generic_models_have_names_without_brackets() -> None:
    """Generators can make a class of every component's name."""
    schemas = Schemas([(Box[Lid | None], "serialization"), (list[Box[Lid]], "serialization")])
    assert all(name.isalnum() for name in schemas.components)
    assert {"BoxLid", "Lid"} < schemas.components.keys()


def test_a_model_that_pydantic_can_not_describe_is_any_value() -> None:
    """One plugin's model doesn't prevent the description of all others."""
    schemas = Schemas([(Opaque, "serialization"), (Lid, "validation")])
    assert schemas.of(Opaque, "serialization") == {}
    assert schemas.components["Lid"]["properties"]["colour"]["type"] == "string"


def test_members_have_no_titles() -> None:
    """Pydantic would give each member a title that repeats its name."""
    lid: Any = Schemas([(Lid, "validation")]).components["Lid"]
    assert "title" not in lid["properties"]["colour"]


def test_a_sent_decimal_is_a_number() -> None:
    """The host writes a Decimal as a number, so the description promises no string."""
    priced: Any = Schemas([(Priced, "serialization")]).components["Priced"]
    assert priced["properties"]["price"] == {"type": "number"}
