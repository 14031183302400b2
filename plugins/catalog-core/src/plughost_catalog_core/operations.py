"""What the operations of a catalog do, for the API description: each version says only what its JSON looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from plughost import Operation, Parameter, Response
from plughost_catalog_core.rules import ProductDraft

if TYPE_CHECKING:
    from pydantic import BaseModel

_EXAMPLES: Final = {
    "in stock": {"sku": "TEA-250", "name": "Green tea, 250 g", "price": 4.95, "stock": 120},
    "sold out": {"sku": "POT/1.2L", "name": "Teapot", "price": 19.99, "stock": 0},
}


def _text(description: str) -> Response:
    return Response(description=description, model=str, media_types=("text/plain",))


_SKU: Final = Parameter(
    name="sku",
    place="path",
    description="The product's SKU, percent-encoded whole.",
    # Without the rules of a SKU: one that breaks them names no product, and is not found as any other.
    schema={"type": "string", "examples": ["TEA-250"]},
)
_UNKNOWN: Final = _text("No product has this SKU: `Product not found: <sku>`.")


def list_operation(product: type[Any]) -> Operation:
    """Describe the list.

    Args:
        product: The JSON of one product, here and in the functions below: a pydantic model or a dataclass.
    """
    return Operation(
        summary="List all products",
        responses={200: Response(description="The products in order of creation.", model=list[product])},  # type: ignore[valid-type] # a type made at run time, for run time
    )


def get_operation(product: type[Any]) -> Operation:
    """Describe reading one product."""
    return Operation(
        summary="Get a product by its SKU",
        responses={200: Response(description="The product.", model=product), 404: _UNKNOWN},
        parameters=(_SKU,),
    )


def create_operation(
    product: type[Any],
    *,
    request: type[BaseModel] = ProductDraft,
    located: bool = True,
    bounded: bool = False,
) -> Operation:
    """Describe the create.

    Args:
        product: The JSON of one product.
        request: The JSON that is read.
        located: Whether the version can get a product by SKU, so that `Location` names the new one.
        bounded: Whether there is room for so many products only.
    """
    headers = {"Location": "The path of the new product."} if located else {}
    responses = {
        201: Response(description="The product as it was created.", model=product, headers=headers),
        400: _text("The body is no JSON, or breaks rules: one `field: message` line for each invalid field."),
        409: _text("Another product has this SKU: `Product SKU already exists: <sku>`."),
    }
    if bounded:
        responses[507] = _text("The catalog is full.")
    return Operation(summary="Create a product", request=request, responses=responses, examples=_EXAMPLES)


def delete_operation() -> Operation:
    """Describe the delete."""
    return Operation(
        summary="Delete a product by its SKU",
        responses={204: Response(description="The product is gone."), 404: _UNKNOWN},
        parameters=(_SKU,),
    )
