"""The product rules (SPEC Product, CONTRACT 4) that all versions of the catalog share: validation and errors.

How a product is stored and what its JSON looks like differs by version, so it isn't here.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

import falcon
from pydantic import BaseModel, Field

from plughost.http import Integer, Number, Text

MAX_LENGTH: Final = 255
"""Maximum length of a SKU or a name, in Unicode code points."""

MAX_STOCK: Final = 2**63 - 1

Sku = Annotated[str, Text(max_length=MAX_LENGTH), Field(examples=["TEA-250"])]
Name = Annotated[str, Text(max_length=MAX_LENGTH), Field(examples=["Green tea, 250 g"])]
Price = Annotated[Decimal, Number(minimum=0, integer_digits=11, fraction_digits=4), Field(examples=[4.95])]
Stock = Annotated[int, Integer(minimum=0, maximum=MAX_STOCK), Field(examples=[120])]


class ProductDraft(BaseModel):
    """The body of a create.

    Attributes:
        sku: Not blank, stored exactly as sent.
        name: Not blank, stored exactly as sent.
        price: At most 11 digits before the point and 4 after it; exact, `1e2` is 100.
        stock: How many there are.
    """

    sku: Sku
    name: Name
    price: Price
    stock: Stock


class ProductNotFound(falcon.HTTPNotFound):
    """No product has this SKU: 404."""

    def __init__(self, sku: str) -> None:
        super().__init__(description=f"Product not found: {sku}")


class ProductExists(falcon.HTTPConflict):
    """Another product has this SKU already: 409."""

    def __init__(self, sku: str) -> None:
        super().__init__(description=f"Product SKU already exists: {sku}")


def sku_path(sku: str) -> str:
    """Return a SKU as a path segment, all but unreserved characters percent-encoded (RFC 3986).

    Args:
        sku: Any SKU. `.` and `..` become `%2E` and `%2E%2E`, so that clients don't remove them as dot segments.
    """
    return sku.replace(".", "%2E") if sku in {".", ".."} else falcon.uri.encode_value(sku)
