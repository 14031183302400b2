"""Schemas of models: names, and models that can't be described."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, create_model

from plughost_openapi.schemas import Schemas

T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    """Holds one."""

    content: T


class Lid(BaseModel):
    """What a box may hold."""

    colour: str = "red"


class Opaque:
    """Nothing that pydantic knows."""


def test_models_of_one_name_are_told_apart_by_their_package() -> None:
    """Two plugins may have a model of the same name; both are there, under names that say whose they are."""
    one = create_model("Thing", __module__="plughost_ink.plugin", size=(int, 1))
    other = create_model("Thing", __module__="plughost_red_ink.plugin", size=(str, ""))
    schemas = Schemas([(one, "serialization"), (other, "serialization")])
    assert schemas.components.keys() == {"InkThing", "RedInkThing"}
    assert schemas.of(other, "serialization") == {"$ref": "#/components/schemas/RedInkThing"}


def test_generic_models_have_names_without_brackets() -> None:
    """The name of a component is one that every generator makes a class of."""
    schemas = Schemas([(Box[Lid | None], "serialization"), (list[Box[Lid]], "serialization")])
    assert all(name.isalnum() for name in schemas.components)
    assert {"BoxLid", "Lid"} < schemas.components.keys()


def test_a_model_that_pydantic_can_not_describe_is_anything() -> None:
    """One plugin's odd model doesn't take the description of all others away."""
    schemas = Schemas([(Opaque, "serialization"), (Lid, "validation")])
    assert schemas.of(Opaque, "serialization") == {}
    assert schemas.components["Lid"]["properties"]["colour"]["type"] == "string"


def test_members_have_no_titles() -> None:
    """Pydantic would give each member a title that repeats its name."""
    lid: Any = Schemas([(Lid, "validation")]).components["Lid"]
    assert "title" not in lid["properties"]["colour"]
