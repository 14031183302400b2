"""The yardstick: the list and the create of catalog v2, written by hand with Falcon and msgspec and nothing else.

It is what one writes for these two operations alone: exact prices, all broken rules in one answer, no duplicates. It
has nothing of what the host adds around them.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import falcon
import msgspec

_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Products:
    """The list and the create."""

    def __init__(self) -> None:
        """Start with no products."""
        self._products: dict[str, dict[str, Any]] = {}

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List all products."""
        resp.data = _encode(list(self._products.values()))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create a product."""
        try:
            body = _decode(req.bounded_stream.read())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
            raise falcon.HTTPBadRequest(description=str(error)) from error
        broken = broken_rules(body)
        if broken:
            raise falcon.HTTPBadRequest(description="\n".join(broken))
        product = {name: body[name] for name in ("sku", "name", "price", "stock")}
        product["inStock"] = body["stock"] > 0
        if self._products.setdefault(body["sku"], product) is not product:
            raise falcon.HTTPConflict(description=f"Product SKU already exists: {body['sku']}")
        resp.status = falcon.HTTP_201
        resp.set_header("Location", f"/api/v2/products/{falcon.uri.encode_value(body['sku'])}")
        resp.data = _encode(product)


def broken_rules(body: Any) -> list[str]:
    """Return what is wrong with a product."""
    if not isinstance(body, dict):
        return ["must be an object"]
    broken = []
    for name in ("sku", "name"):
        text = body.get(name)
        if not isinstance(text, str) or not text.strip() or len(text) > 255 or "\0" in text:
            broken.append(f"{name}: must be a string of 1 to 255 characters, not blank")
    price, stock = body.get("price"), body.get("stock")
    if not isinstance(price, int | Decimal) or isinstance(price, bool) or not 0 <= price < 10**11:
        broken.append("price: must be a number from 0")
    if type(stock) is not int or not 0 <= stock < 2**63:
        broken.append("stock: must be an integer from 0")
    return broken


def make_app(_: Path | None = None) -> falcon.App[Any, Any]:
    """Return the app, which keeps its products in memory."""
    app = falcon.App()
    app.add_route("/api/v2/products", Products())
    return app
