"""JSON, the same everywhere: exact numbers, all errors at once, CONTRACT 2's texts.

A resource reads a body in one line and answers through `resp.media`:

    draft = read_body(req, ProductDraft)

(`send_array` for a list of any length), where the model says the rules once, for the check and for the API description:

    class ProductDraft(BaseModel):
        sku: Annotated[str, Text(max_length=255)]
        price: Annotated[Decimal, Number(minimum=0, integer_digits=11, fraction_digits=4)]
        note: Annotated[str | None, Text(max_length=500, blank=True)] = absent()
"""

from __future__ import annotations

from plughost.http.json.body import DEFAULT_BODY_LIMIT, JSONHandler, read_body, read_json
from plughost.http.json.codec import MAX_DEPTH, MAX_EXPONENT, MalformedJSON, decode, encode
from plughost.http.json.fields import Boolean, Choice, Integer, Number, Text, absent
from plughost.http.json.stream import send_array
from plughost.http.json.validation import validate

__all__ = [
    "DEFAULT_BODY_LIMIT",
    "MAX_DEPTH",
    "MAX_EXPONENT",
    "Boolean",
    "Choice",
    "Integer",
    "JSONHandler",
    "MalformedJSON",
    "Number",
    "Text",
    "absent",
    "decode",
    "encode",
    "read_body",
    "read_json",
    "send_array",
    "validate",
]
