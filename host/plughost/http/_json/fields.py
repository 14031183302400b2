"""Rules of a model's fields, which refuse with CONTRACT 2's texts and show their bounds in the API description.

Put a rule into an annotation, after the type of the checked value. A field without a default is required. An optional
field has the default `absent()`: null in the body is still refused, and the model's `model_fields_set` holds the
fields that were sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable

RULE: Final = "plughost_rule"

NOT_BLANK: Final = "must not be blank"
NOT_NULL: Final = "must not be null"

# The characters of Unicode's property White_Space; str.isspace() accepts four more control characters.
_WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_NO_NUL_PATTERN: Final = r"^[^\u0000]*$"
_NOT_BLANK_PATTERN: Final = (
    r"^[^\u0000]*[^\u0000\u0009-\u000d\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\u0000]*$"
)


def absent() -> Any:
    """Return the default of an optional field: None if the body lacks it, while null in the body is refused."""
    return Field(default_factory=lambda: None)


def refusal(text: str) -> PydanticCustomError:
    """Return the error that a rule raises, with the text of the violation."""
    return PydanticCustomError(RULE, "{text}", {"text": text})


class Rule:
    """The base of the rules: pydantic gets the check and the JSON Schema from them."""

    __slots__ = ()

    def checker(self) -> Callable[[Any], Any]:
        """Return a function that returns the checked value or raises a refusal."""
        return self._check

    def _check(self, value: Any) -> Any:
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what the rule accepts."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.json_schema()


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Rule):
    """A string without NUL, kept exactly as sent.

    Attributes:
        max_length: Maximum length in Unicode code points. None for no limit.
        blank: Whether it may be empty or only Unicode white space.
    """

    max_length: int | None = None
    blank: bool = False

    def _check(self, value: Any) -> str:
        if value is None:
            raise refusal(NOT_NULL if self.blank else NOT_BLANK)
        if not isinstance(value, str):
            raise refusal("must be a string")
        if "\0" in value:
            raise refusal("must not contain NUL")
        if not self.blank and (not value or (value.isspace() and not value.strip(_WHITE_SPACE))):
            raise refusal(NOT_BLANK)
        if self.max_length is not None and len(value) > self.max_length:
            raise refusal(f"size must be between 0 and {self.max_length}")
        return value

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        if not self.blank:
            schema["minLength"] = 1
        if self.max_length is not None:
            schema["maxLength"] = self.max_length
        schema["pattern"] = _NO_NUL_PATTERN if self.blank else _NOT_BLANK_PATTERN
        return schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(Rule):
    """An integer, also when written `5.0` or `5e2`.

    Attributes:
        minimum: The smallest accepted value.
        maximum: The largest accepted value.
    """

    minimum: int | None = None
    maximum: int | None = None

    def _check(self, value: Any) -> int:
        number = value if type(value) is int else _integral(value)
        if self.minimum is not None and number < self.minimum:
            raise refusal(f"must be greater than or equal to {self.minimum}")
        if self.maximum is not None and number > self.maximum:
            raise refusal(f"must be less than or equal to {self.maximum}")
        return number

    def json_schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        return {"type": "integer"} | {name: bound for name, bound in bounds.items() if bound is not None}


def _integral(value: Any) -> int:
    if value is None:
        raise refusal(NOT_NULL)
    number = Decimal(value) if isinstance(value, float) else value
    if isinstance(number, Decimal) and number.is_finite() and number == number.to_integral_value():
        return int(number)
    raise refusal("must be an integer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Rule):
    """An exact number, as `Decimal`. Digits are counted by value, so `1.50000` has one after the point.

    Attributes:
        minimum: The smallest accepted value.
        exclusive_minimum: The value must be greater than this.
        maximum: The largest accepted value.
        integer_digits: Maximum digits before the decimal point. Requires `fraction_digits`.
        fraction_digits: Maximum digits after it. Requires `integer_digits`.
    """

    minimum: int | Decimal | None = None
    exclusive_minimum: int | Decimal | None = None
    maximum: int | Decimal | None = None
    integer_digits: int | None = None
    fraction_digits: int | None = None

    def __post_init__(self) -> None:
        if (self.integer_digits is None) != (self.fraction_digits is None):
            raise ValueError("integer_digits and fraction_digits go together")

    def _check(self, value: Any) -> Decimal:
        number = value if type(value) is Decimal else _decimal(value)
        if not number.is_finite():
            raise refusal("must be a number")
        if self.minimum is not None and number < self.minimum:
            raise refusal(f"must be greater than or equal to {self.minimum}")
        if self.exclusive_minimum is not None and number <= self.exclusive_minimum:
            raise refusal(f"must be greater than {self.exclusive_minimum}")
        if self.maximum is not None and number > self.maximum:
            raise refusal(f"must be less than or equal to {self.maximum}")
        if not number:
            return Decimal(0)
        integer, fraction = self.integer_digits, self.fraction_digits
        return number if integer is None or fraction is None else _to_scale(number, integer, fraction)

    def json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "number"}
        bounds = {"minimum": self.minimum, "exclusiveMinimum": self.exclusive_minimum, "maximum": self.maximum}
        schema |= {name: _to_json_number(bound) for name, bound in bounds.items() if bound is not None}
        if self.integer_digits is not None and self.fraction_digits is not None:
            limit = 10**self.integer_digits
            if self.maximum is None or self.maximum >= limit:
                schema["exclusiveMaximum"] = limit
            if schema.keys().isdisjoint({"minimum", "exclusiveMinimum"}):
                schema["exclusiveMinimum"] = -limit
            # Not multipleOf: validators that compute in binary, such as JavaScript's, would refuse 0.0003.
            schema["x-fraction-digits"] = self.fraction_digits
        return schema


def _decimal(value: Any) -> Decimal:
    if value is None:
        raise refusal(NOT_NULL)
    if type(value) is int:
        return Decimal(value)
    if type(value) is float:
        return Decimal(repr(value))
    raise refusal("must be a number")


def _to_scale(number: Decimal, integer: int, fraction: int) -> Decimal:
    """Check the number of digits, and remove needless zeros and exponents."""
    before, _, after = str(number).partition(".")
    if len(before) <= integer and len(after) <= fraction and "E" not in before + after and after[-1:] != "0":
        return number
    scaled = None
    if number.adjusted() < integer:
        context = Context(prec=max(1, integer + fraction), rounding=ROUND_DOWN)
        scaled = number.quantize(Decimal(1).scaleb(-fraction), context=context)
    if scaled != number:
        raise refusal(f"numeric value out of bounds ({integer} digits.{fraction} digits expected)")
    return Decimal(format(scaled, "f").rstrip("0").rstrip(".")) if fraction else scaled


def _to_json_number(bound: int | Decimal) -> int | float:
    return int(bound) if bound == int(bound) else float(bound)


@dataclass(frozen=True, slots=True)
class Boolean(Rule):
    """True or false."""

    def _check(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise refusal(NOT_NULL if value is None else "must be a boolean")

    def json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True, init=False)
class Choice(Rule):
    """One of a few strings.

    Attributes:
        values: The strings.
    """

    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        """Take the strings, in the order in which they are shown."""
        object.__setattr__(self, "values", values)

    def _check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise refusal(NOT_NULL if value is None else "must be a string")
        if value not in self.values:
            raise refusal(f"must be one of {', '.join(self.values)}")
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.values)}
