"""The catalog's operations for the API description. Each version adds only its JSON model."""

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


def _text(description: str, example: str) -> Response:
    return Response(description=description, model=str, media_types=("text/plain",), example=example)


_SKU: Final = Parameter(
    name="sku",
    place="path",
    description="The product's SKU, percent-encoded whole.",
    # Any string: an invalid SKU is answered 404, like every other unknown one.
    schema={"type": "string", "examples": ["TEA-250"]},
)
_NOT_FOUND: Final = _text("No product has this SKU.", "Product not found: TEA-250")


def list_operation(product: type[Any], version: int) -> Operation:
    """Describe the list.

    Args:
        product: The JSON model of a product: a pydantic model or a dataclass.
        version: The catalog's version, which makes the operation's id unique.
    """
    return Operation(
        id=f"listProductsV{version}",
        summary="List all products",
        description="All of them in one array, in the order in which they were created; empty if there are none.",
        responses={200: Response(description="The products in order of creation.", model=list[product])},  # type: ignore[valid-type] # the model is a run-time value
    )


def get_operation(product: type[Any], version: int) -> Operation:
    """Describe reading one product."""
    return Operation(
        id=f"getProductV{version}",
        summary="Get a product by its SKU",
        description="The product, or 404 with a text that names the SKU.",
        responses={200: Response(description="The product.", model=product), 404: _NOT_FOUND},
        parameters=(_SKU,),
    )


def create_operation(
    product: type[Any],
    version: int,
    *,
    request: type[BaseModel] = ProductDraft,
    located: bool = True,
    bounded: bool = False,
) -> Operation:
    """Describe the create.

    Args:
        product: The JSON model of a product.
        version: The catalog's version.
        request: The JSON model of the request body.
        located: Whether the response has `Location`; false where no product can be read by SKU.
        bounded: Whether the number of products is limited, so that a create can be 507.
    """
    headers = {"Location": "The path of the new product."} if located else {}
    responses = {
        201: Response(description="The product as it was created.", model=product, headers=headers),
        400: _text(
            "The body is not JSON or not valid: a line for each invalid field.",
            "sku: must not be blank\nprice: must be greater than or equal to 0",
        ),
        409: _text("Another product has this SKU.", "Product SKU already exists: TEA-250"),
    }
    if bounded:
        responses[507] = _text("The catalog is full.", "The catalog is full: it keeps at most 100000 products")
    return Operation(
        id=f"createProductV{version}",
        summary="Create a product",
        description="The client chooses the SKU, which must be new. Of concurrent creates, exactly one succeeds.",
        request=request,
        responses=responses,
        examples=_EXAMPLES,
    )


def delete_operation(version: int) -> Operation:
    """Describe the delete."""
    return Operation(
        id=f"deleteProductV{version}",
        description="It can't be undone. The SKU can then be used again.",
        summary="Delete a product by its SKU",
        responses={204: Response(description="The product was deleted."), 404: _NOT_FOUND},
        parameters=(_SKU,),
    )
