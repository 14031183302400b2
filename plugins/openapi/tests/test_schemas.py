"""Schemas of models: their names, and models that can't be described."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

import pytest
from pydantic import BaseModel, create_model

from plughost_openapi.schemas import Schemas, with_int64

T = TypeVar("T")
KINDS: Final = (("One", int), ("Other", str))


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


def test_a_model_that_is_sent_in_another_shape_has_two_components() -> None:
    """What a client may send and what it receives are both described, whatever the model's title."""
    both = create_model("Thing", __module__="plughost_ink.plugin", __config__={"title": "Pen"}, size=(Decimal, 1))
    schemas = Schemas([(both, "serialization"), (both, "validation")])
    assert schemas.of(both, "serialization") == {"$ref": "#/components/schemas/PenOutput"}
    assert schemas.of(both, "validation") == {"$ref": "#/components/schemas/PenInput"}
    assert schemas.components["PenOutput"]["properties"]["size"]["type"] == "number"
    assert "anyOf" in schemas.components["PenInput"]["properties"]["size"]


def test_models_of_one_name_in_one_package_are_distinguished() -> None:
    """Neither replaces the other, whether their names are those of their classes or their titles."""
    modules = [create_model("Thing", __module__=f"plughost_ink.{name}", size=(kind, 1)) for name, kind in KINDS]
    titled = [create_model(name, __config__={"title": "Pen"}, size=(kind, 1)) for name, kind in KINDS]
    for models in (modules, titled):
        schemas = Schemas([(model, "serialization") for model in models])
        names = [schemas.of(model, "serialization")["$ref"].rpartition("/")[2] for model in models]
        types = [schemas.components[name]["properties"]["size"]["type"] for name in names]
        assert types == ["integer", "string"]
        assert all(name.isalnum() for name in names)


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "integer", "maximum": 2**31 - 1}, None),
        ({"type": "integer", "maximum": 2**31}, "int64"),
        ({"type": "integer", "minimum": -(2**40)}, "int64"),
        ({"type": "integer", "examples": [1_790_000_000_000]}, "int64"),
        ({"type": "integer", "maximum": 2**40, "format": "epoch"}, "epoch"),
        ({"type": "number", "maximum": 2**40}, None),
    ],
)
def test_integers_that_need_64_bits_have_the_format_for_it(schema: dict[str, Any], wanted: str | None) -> None:
    """Generators for Go and Java take 32 bits for an integer without a format; other formats are kept."""
    assert with_int64(schema).get("format") == wanted
    assert with_int64({"type": "array", "items": schema})["items"].get("format") == wanted


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
