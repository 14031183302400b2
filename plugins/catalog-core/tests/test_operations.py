"""The operations as the API description shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, TypeAdapter

from plughost.http import validate
from plughost_catalog_core import (
    ProductDraft,
    ProductJSON,
    create_operation,
    delete_operation,
    get_operation,
    list_operation,
)

if TYPE_CHECKING:
    from plughost import Operation


class OtherJSON(BaseModel):
    """A product with different members."""

    id: int


def statuses(operation: Operation) -> list[int]:
    """Return the statuses that an operation declares."""
    return list(operation.responses)


def test_each_version_shows_its_own_json() -> None:
    """Each answer with a product has the model of its version."""
    assert list_operation(OtherJSON, 9).responses[200].model == list[OtherJSON]
    assert get_operation(OtherJSON, 9).responses[200].model is OtherJSON
    assert create_operation(OtherJSON, 9).responses[201].model is OtherJSON
    assert create_operation(OtherJSON, 9, request=OtherJSON).request is OtherJSON


def test_answers_are_those_in_the_contract() -> None:
    """A catalog in memory may be full; one that can't get by SKU sends no Location."""
    assert statuses(create_operation(ProductJSON, 9)) == [201, 400, 409]
    assert statuses(create_operation(ProductJSON, 9, bounded=True)) == [201, 400, 409, 507]
    assert "Location" in create_operation(ProductJSON, 9).responses[201].headers
    assert not create_operation(ProductJSON, 9, located=False).responses[201].headers
    assert statuses(get_operation(ProductJSON, 9)) == [200, 404]
    assert statuses(delete_operation(9)) == [204, 404]
    assert delete_operation(9).responses[204].model is None


def test_the_examples_work() -> None:
    """A client that copies an example into a request creates a product."""
    examples = create_operation(ProductJSON, 9).examples.values()
    assert examples
    for example in examples:
        assert validate(ProductDraft, example).sku == example["sku"]


def test_the_schema_has_the_true_bounds() -> None:
    """Price is a number and not a string, also in answers."""
    for model, mode in ((ProductDraft, "validation"), (ProductJSON, "serialization")):
        members = TypeAdapter(model).json_schema(mode="validation" if mode == "validation" else "serialization")
        properties = members["properties"]
        assert (properties["price"]["type"], properties["price"]["minimum"]) == ("number", 0)
        assert (properties["stock"]["type"], properties["stock"]["maximum"]) == ("integer", 2**63 - 1)
        assert (properties["sku"]["type"], properties["sku"]["maxLength"]) == ("string", 255)
        assert members["required"][:4] == ["sku", "name", "price", "stock"]
