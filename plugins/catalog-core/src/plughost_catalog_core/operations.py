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


def _text(description: str, example: str) -> Response:
    return Response(description=description, model=str, media_types=("text/plain",), example=example)


_SKU: Final = Parameter(
    name="sku",
    place="path",
    description="The product's SKU, percent-encoded whole.",
    # Without the rules of a SKU: one that breaks them names no product, and is not found as any other.
    schema={"type": "string", "examples": ["TEA-250"]},
)
_UNKNOWN: Final = _text("No product has this SKU.", "Product not found: TEA-250")


def list_operation(product: type[Any], version: int) -> Operation:
    """Describe the list.

    Args:
        product: The JSON of one product, here and in the functions below: a pydantic model or a dataclass.
        version: The catalog's version, by which clients tell its operations from another's.
    """
    return Operation(
        id=f"listProductsV{version}",
        summary="List all products",
        description="All of them in one array, in the order in which they were created; empty where there are none.",
        responses={200: Response(description="The products in order of creation.", model=list[product])},  # type: ignore[valid-type] # a type made at run time, for run time
    )


def get_operation(product: type[Any], version: int) -> Operation:
    """Describe reading one product."""
    return Operation(
        id=f"getProductV{version}",
        summary="Get a product by its SKU",
        description="The product, or a text that says that there is none.",
        responses={200: Response(description="The product.", model=product), 404: _UNKNOWN},
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
        product: The JSON of one product.
        version: The catalog's version.
        request: The JSON that is read.
        located: Whether the version can get a product by SKU, so that `Location` names the new one.
        bounded: Whether there is room for so many products only.
    """
    headers = {"Location": "The path of the new product."} if located else {}
    responses = {
        201: Response(description="The product as it was created.", model=product, headers=headers),
        400: _text(
            "The body is no JSON, or breaks rules: a line for each invalid field.",
            "sku: must not be blank\nprice: must be greater than or equal to 0",
        ),
        409: _text("Another product has this SKU.", "Product SKU already exists: TEA-250"),
    }
    if bounded:
        responses[507] = _text("The catalog is full.", "The catalog is full: it holds 100000 products.")
    return Operation(
        id=f"createProductV{version}",
        summary="Create a product",
        description="The SKU identifies it, and is free to choose; of creates that race for one, a single one wins.",
        request=request,
        responses=responses,
        examples=_EXAMPLES,
    )


def delete_operation(version: int) -> Operation:
    """Describe the delete."""
    return Operation(
        id=f"deleteProductV{version}",
        description="For good: its SKU is free for another product then.",
        summary="Delete a product by its SKU",
        responses={204: Response(description="The product is gone."), 404: _UNKNOWN},
        parameters=(_SKU,),
    )
