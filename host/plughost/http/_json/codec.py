"""JSON to values and back, and as bodies: numbers are exact, and no client's input causes worse than a 400."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

import falcon
import falcon.media
import msgspec
import pydantic_core
from pydantic import BaseModel

from plughost.http._json.validation import ModelT, validate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from falcon.typing import ReadableIO

MAX_DEPTH: Final = 100
"""How deep arrays and objects may be nested."""

MAX_EXPONENT: Final = 324
"""Largest exponent of a number's first digit, positive or negative: enough for each finite binary float (5e-324)."""

DEFAULT_BODY_LIMIT: Final = 1024 * 1024
"""Bytes; the limit for a request without a mounted route (CONTRACT 2)."""

_MAX_NUMBER_LENGTH: Final = 1000
_MAX_NAME_LENGTH: Final = 1000  # bytes; pydantic copies a member's name for each error in its value

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SYNTAX_ERROR: Final = re.compile(r"^JSON is malformed: (?P<what>.*) \(byte (?P<byte>\d+)\)$")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # signed: one level down, one up
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_E, _N, _I = b"ENI"
_NEEDS_REWRITE: Final = re.compile(rb"\dE[+-]\d|(?:^|[\[:,])-?(?:s?NaN|Infinity)")


class MalformedJSON(falcon.HTTPBadRequest):
    """A body isn't JSON, or exceeds the limits of numbers or nesting (CONTRACT 2): 400."""

    def __init__(self, reason: str) -> None:
        """Take what is wrong, and where, as a sentence for API clients."""
        super().__init__(title="Bad Request", description=reason)


def decode(raw: bytes) -> Any:
    """Return the value of a JSON text: UTF-8 without a byte order mark (RFC 8259, section 8.1).

    Integers become `int`, other numbers `Decimal`, exactly. If a member is repeated, the last one counts.

    Raises:
        MalformedJSON: The text is empty or malformed, isn't UTF-8, has a lone surrogate or NaN, nests deeper than
            100 levels, or has a number with an exponent beyond 324, an integer of more than 4300 digits, another
            number of more than 1000 characters or a member's name of more than 1000 bytes.
    """
    # A shorter text with so few opening brackets can't be nested too deep, or have too long a name.
    if len(raw) > _MAX_NAME_LENGTH or (len(raw) > MAX_DEPTH and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH):
        parts = raw.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"')  # outside and inside of strings in turn
        if _is_too_deep(parts):
            raise MalformedJSON(_TOO_DEEP)
        if _has_long_name(parts):
            raise MalformedJSON(f"The request body holds a member name of more than {_MAX_NAME_LENGTH} bytes.")
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, ArithmeticError) as error:
        raise MalformedJSON(_reason(raw, error)) from error


def encode(value: object) -> bytes:
    """Return a value as JSON text.

    Decimals are written as numbers with all their digits; those up to the exponent 324 without an exponent. Dates and
    times are written as ISO 8601, binary data as base64. Pydantic models (by alias), dataclasses, msgspec structs,
    enumerations, sets, mappings and `msgspec.Raw`, which is JSON already, may appear anywhere. A binary float that
    isn't finite becomes null. The keys of a mapping must not be Decimals: those would be written without quotes.

    Raises:
        ValueError: A Decimal is NaN or infinite, or a string has a lone surrogate.
        TypeError: JSON has no type for a value.
    """
    encoded = _ENCODER.encode(value)
    # msgspec writes `str(decimal)`, and `1E+2` or `NaN` are rare: searching for them beats visiting each value.
    # Single bytes first: searching for one takes a tenth of the time of searching for two.
    if (
        (_E in encoded and (b"E+" in encoded or b"E-" in encoded))
        or (_N in encoded and b"NaN" in encoded)
        or (_I in encoded and b"Infinity" in encoded)
    ) and _NEEDS_REWRITE.search(encoded):
        builtins = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=_to_builtin)
        return _ENCODER.encode(_without_exponents(builtins))
    return encoded


def _number(text: str) -> Decimal:
    """Return a number that isn't an integer, or refuse it before anything computes with it or formats it."""
    number = Decimal(text)
    if len(text) > _MAX_NUMBER_LENGTH or not -MAX_EXPONENT <= number.adjusted() <= MAX_EXPONENT:
        raise MalformedJSON(_OUT_OF_RANGE)
    return number


def _to_builtin(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, msgspec.Raw):
        return _DECODER.decode(value)
    # Pydantic converts paths and, in later releases, URLs, addresses and masked secrets. Only strings are taken: in
    # containers, pydantic would convert Decimals to strings.
    text = pydantic_core.to_jsonable_python(value, fallback=lambda _: None)
    if isinstance(text, str):
        return text
    raise TypeError(f"JSON has no place for {type(value).__name__}.")


def _without_exponents(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_exponents(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_exponents(item) for item in value]
    if not isinstance(value, Decimal):
        return value
    if not value.is_finite():
        raise ValueError("NaN and infinite numbers have no place in JSON.")
    if "E" in str(value) and abs(value.adjusted()) <= MAX_EXPONENT:
        return msgspec.Raw(format(value, "f").encode())
    return value


def _is_too_deep(parts: list[bytes]) -> bool:
    """Check the nesting before decoding: on Python 3.13 msgspec overflows the stacks of granian's threads."""
    steps = b"".join(parts[::2]).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH


def _has_long_name(parts: list[bytes]) -> bool:
    strings = zip(parts[1::2], parts[2::2], strict=False)
    return any(len(text) > _MAX_NAME_LENGTH and after.lstrip()[:1] == b":" for text, after in strings)


def _reason(raw: bytes, error: Exception) -> str:
    if isinstance(error, ArithmeticError):
        return _OUT_OF_RANGE
    if isinstance(error, msgspec.ValidationError):  # msgspec's error for an integer beyond Python's limit of digits
        return "The request body holds an integer with too many digits."
    if not raw.strip():
        return "The request body is missing; a JSON value is expected."
    try:
        raw.decode()
    except UnicodeDecodeError as invalid:
        return f"The request body is not valid UTF-8{_at_position(raw, invalid.start)}."
    return f"The request body is not valid JSON: {_describe_syntax_error(raw, str(error))}."


def _describe_syntax_error(raw: bytes, message: str) -> str:
    if raw.startswith(_BYTE_ORDER_MARK):
        return "it starts with a byte order mark"
    match = _SYNTAX_ERROR.match(message)
    surrogate = _LONE_SURROGATE.search(raw)
    if match is None:  # "Input data was truncated": msgspec looks ahead for the second half of a pair
        return f"a lone surrogate{_at_position(raw, surrogate.start())}" if surrogate else "it ends too early"
    what = "a lone surrogate" if "surrogate" in match["what"] else match["what"]
    return what + _at_position(raw, int(match["byte"]))


def _at_position(raw: bytes, byte: int) -> str:
    before = raw[:byte]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    return f" at line {line}, column {column}"


_TOO_DEEP: Final = f"The request body is nested deeper than {MAX_DEPTH} levels."
_OUT_OF_RANGE: Final = "The request body holds a number that is out of range."
_DECODER: Final = msgspec.json.Decoder(float_hook=_number)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_to_builtin)


def read_body(req: falcon.Request, model: type[ModelT]) -> ModelT:
    """Return the model made from a request's JSON body.

    Raises:
        Invalid: The body breaks the model's rules.
        falcon.HTTPError: As `read_json`.
    """
    return validate(model, read_json(req))


def read_json(req: falcon.Request) -> Any:
    """Return the value of a request's JSON body. Without a Content-Type, the body counts as JSON (CONTRACT 2).

    Raises:
        falcon.HTTPUnsupportedMediaType: The Content-Type isn't JSON, or the body is compressed.
        falcon.HTTPContentTooLarge: The body exceeds the default limit, and the request has no mounted route. The host
            checks the limits of mounted routes before it calls a resource.
        MalformedJSON: The body isn't JSON.
    """
    content_type = req.content_type
    if content_type is not None and content_type != "application/json" and not _is_json(content_type):
        raise falcon.HTTPUnsupportedMediaType(
            description="This resource reads application/json in UTF-8.", headers={"Accept": "application/json"}
        )
    coding = req.env.get("HTTP_CONTENT_ENCODING")
    if coding and coding.strip().lower() not in ("", "identity"):
        raise falcon.HTTPUnsupportedMediaType(
            description="This resource reads no compressed bodies.", headers={"Accept-Encoding": "identity"}
        )
    if getattr(req, "mounted", None) is None and (req.content_length or 0) > DEFAULT_BODY_LIMIT:
        raise falcon.HTTPContentTooLarge(
            description=f"The request body is larger than the {DEFAULT_BODY_LIMIT} bytes accepted here."
        )
    # Not `bounded_stream`: an engine's stream ends with the body, and the wrapper costs a microsecond.
    return decode(req.stream.read())


def _is_json(content_type: str) -> bool:
    """Return whether a Content-Type is JSON: `application/json` or a `+json` type (RFC 6839), in UTF-8."""
    media_type, parameters = falcon.parse_header(content_type)
    main, _, sub = media_type.strip().lower().partition("/")
    charset = parameters.get("charset", "utf-8").lower()
    return main == "application" and (sub == "json" or sub.endswith("+json")) and charset in ("utf-8", "utf8")


def send_array(resp: falcon.Response, batches: Iterable[Sequence[object]]) -> None:
    """Respond with a JSON array. Call this last in a responder.

    A single batch is sent with its Content-Length; several are streamed. The first two batches are fetched at once, so
    that their errors become ordinary error responses. A later error cuts the response off, and the client sees that
    it is incomplete.

    Args:
        resp: The response.
        batches: The items in order, such as from `OpenStore.batches`: anything that `encode` accepts.
    """
    remaining = iter(batches)
    first = next(remaining, ())
    second = next(remaining, None)
    if second is None:
        resp.data = encode(first)
    else:
        resp.stream = _parts(chain((first, second), remaining))


def _parts(batches: Iterable[Sequence[object]]) -> Iterator[bytes]:
    separator = b"["
    for batch in batches:
        if batch:
            yield separator + encode(batch)[1:-1]
            separator = b","
    yield b"]" if separator == b"," else b"[]"


class JSONHandler(falcon.media.BaseHandler):
    """Falcon's media handler for JSON: `req.media` through `decode`, `resp.media` through `encode`."""

    def serialize(self, media: object, content_type: str) -> bytes:
        return encode(media)

    def deserialize(self, stream: ReadableIO, content_type: str | None, content_length: int | None) -> object:
        raw = stream.read()
        if raw:
            return decode(raw)
        if content_length:  # it exceeds the limit, so the engine passed on nothing of it
            raise falcon.HTTPContentTooLarge(description="The request body is larger than accepted here.")
        raise falcon.MediaNotFoundError("JSON")
