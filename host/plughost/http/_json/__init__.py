"""JSON, the same everywhere: exact numbers, all errors at once, CONTRACT 2's texts."""

from __future__ import annotations

from plughost.http._json.body import DEFAULT_BODY_LIMIT, JSONHandler, read_body, read_json, send_array
from plughost.http._json.codec import MAX_DEPTH, MAX_EXPONENT, MalformedJSON, decode, encode
from plughost.http._json.fields import Boolean, Choice, Integer, Number, Text, absent
from plughost.http._json.validation import validate

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
