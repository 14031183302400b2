"""The product rules (SPEC Product, CONTRACT 4): what every version of the catalog accepts, and what it refuses with.

What versions differ in is kept out of here: how a product is stored, and what its JSON looks like.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

import falcon
from pydantic import BaseModel, Field

from plughost.http import Integer, Number, Text

MAX_LENGTH: Final = 255
"""Most Unicode code points of a SKU or a name."""

MAX_STOCK: Final = 2**63 - 1

Sku = Annotated[str, Text(max_length=MAX_LENGTH), Field(examples=["TEA-250"])]
Name = Annotated[str, Text(max_length=MAX_LENGTH), Field(examples=["Green tea, 250 g"])]
Price = Annotated[Decimal, Number(minimum=0, integer_digits=11, fraction_digits=4), Field(examples=[4.95])]
Stock = Annotated[int, Integer(minimum=0, maximum=MAX_STOCK), Field(examples=[120])]


class ProductDraft(BaseModel):
    """A product as a client describes it: the body of a create.

    Attributes:
        sku: Not blank, kept exactly as sent.
        name: Not blank, kept exactly as sent.
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
        """Name the SKU."""
        super().__init__(description=f"Product not found: {sku}")


class ProductExists(falcon.HTTPConflict):
    """Another product has this SKU already: 409."""

    def __init__(self, sku: str) -> None:
        """Name the SKU."""
        super().__init__(description=f"Product SKU already exists: {sku}")


def sku_path(sku: str) -> str:
    """Return the path segment that names a SKU: everything but unreserved characters percent-encoded (RFC 3986).

    Args:
        sku: Any SKU. `.` and `..` come out as `%2E` and `%2E%2E`, which clients don't take for steps in a path.
    """
    return sku.replace(".", "%2E") if sku in {".", ".."} else falcon.uri.encode_value(sku)
