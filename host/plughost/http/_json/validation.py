"""Validation of decoded values by pydantic models: all invalid fields at once, one text for each (CONTRACT 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from plughost.http._errors import Invalid, Violation
from plughost.http._json.fields import NOT_NULL, RULE

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_VIOLATIONS: Final = 1000
"""Maximum violations in a response, so that it can't dwarf its request."""

_MAX_ERRORS: Final = 10 * MAX_VIOLATIONS
"""Errors that are named. A body of 1 MiB can have half a million, each of which pydantic describes in 2 KiB."""

Location = tuple[int | str, ...]


def validate(model: type[ModelT], value: Any) -> ModelT:
    """Return the model made from a JSON value that `decode` returned.

    Each invalid field is listed once, in the order of the model. Nested names are dotted and items are numbered from
    zero, as in `items[0].name`. The empty name is the body as a whole. Unknown members are ignored unless the model
    forbids them.

    Fields of ordinary pydantic types also accept a string or array for what JSON has no type for, such as dates, times,
    UUIDs, enumerations, Decimals or sets. They accept no string for a number or boolean, and no number for a boolean or
    the reverse (except within sets, tuples and dataclasses).

    Raises:
        Invalid: The value breaks rules.
    """
    try:
        # Strict first: it is right for every rule of `fields` and every JSON scalar, and fastest.
        validated: ModelT = model.__pydantic_validator__.validate_python(value, strict=True)
        return validated
    except ValidationError as error:
        if error.error_count() > _MAX_ERRORS:
            _refuse_as_a_whole(model, value)
        strict = error.errors(include_url=False)
    missing = [error["loc"] for error in strict if error["type"] == "missing"]
    if missing and (filled := _with_nulls(value, missing)) != value:
        raise Invalid(_violations_with_missing(model, filled, missing))
    try:
        result = model.model_validate(value)
    except ValidationError as error:
        raise Invalid(_violations(value, strict, error.errors(include_url=False))) from None
    violations = _violations(value, strict, ())
    if violations:
        raise Invalid(violations)
    return result


def _refuse_as_a_whole(model: type[BaseModel], value: Any) -> None:
    """Refuse a value without naming its errors, unless all of them are only strict mode's."""
    try:
        model.model_validate(value)
    except ValidationError:
        raise Invalid([Violation("", f"has more than {_MAX_ERRORS} errors")]) from None


def _violations_with_missing(model: type[BaseModel], filled: Any, missing: Iterable[Location]) -> list[Violation]:
    """Return the violations of a value that lacked members: a missing one gets the text for null."""
    found: list[Violation] = []
    try:
        validate(model, filled)
    except Invalid as invalid:
        found = list(invalid.violations)
    named = {violation.field for violation in found}
    names = dict.fromkeys(_name(filled, location) for location in missing)
    found += [Violation(name, "must be present") for name in names if name not in named]
    return found[:MAX_VIOLATIONS]


def _with_nulls(value: Any, missing: Iterable[Location]) -> Any:
    """Return a copy of a value with null for its missing members."""
    filled = _copy(value)
    for *path, name in missing:
        owner = filled
        for part in path:
            if _has(owner, part):
                owner = owner[part]
        if isinstance(owner, dict):
            owner.setdefault(name, None)
    return filled


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copy(member) for name, member in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _violations(value: Any, strict: Iterable[ErrorDetails], lax: Iterable[ErrorDetails]) -> list[Violation]:
    """Return the violations among the errors of pydantic's strict mode and of its ordinary, lax mode.

    An error in both modes is a violation. An error only in strict mode is one if the member's JSON type differs from
    every type that the field allows.
    """
    refused = _by_name(value, lax)
    about_values = (error for error in strict if error["loc"][-1:] != ("[key]",))  # names are always strings
    violations = {
        name: refused.get(name, errors)
        for name, errors in _by_name(value, about_values).items()
        if name in refused or all(_is_other_type(error) for error in errors)
    }
    return [Violation(name, _text(errors)) for name, errors in islice((violations | refused).items(), MAX_VIOLATIONS)]


def _by_name(value: Any, errors: Iterable[ErrorDetails]) -> dict[str, list[ErrorDetails]]:
    found: dict[str, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(_name(value, error["loc"]), []).append(error)
    return found


def _name(value: Any, location: Location) -> str:
    """Return a violation's field: the location's parts that exist in the value, since unions add their own parts."""
    name = ""
    for depth, part in enumerate(location):
        if _has(value, part):
            value = value[part]
        elif depth > 0 or not isinstance(value, Mapping):
            continue
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    return name.removeprefix(".")


def _has(value: Any, part: int | str) -> bool:
    if isinstance(value, Mapping):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _is_other_type(error: ErrorDetails) -> bool:
    """Return whether strict mode refused a member's JSON type, not only since JSON has no date, set or Decimal."""
    if error["type"] in ("int_type", "float_type"):
        return isinstance(error["input"], bool | str)
    return error["type"] in ("bool_type", "string_type")


def _text(errors: Iterable[ErrorDetails]) -> str:
    """Return the text for one field. A union has an error for each of its types."""
    first, *others = dict.fromkeys(_text_of(error) for error in errors)
    return " or ".join((first, *(text.removeprefix("must be ") for text in others)))


def _text_of(error: ErrorDetails) -> str:
    kind = error["type"]
    if kind == RULE:
        return error["msg"]
    text = _TEXTS.get(kind)
    if text is not None:
        null = error["input"] is None and error["loc"] and text.startswith("must be")
        return NOT_NULL if null else text.format_map(error.get("ctx", {}))
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if message.startswith("Input should "):
        return NOT_NULL if error["input"] is None else "must " + message.removeprefix("Input should ")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


# Errors whose pydantic message doesn't start with "Input should be", or doesn't use JSON's terms.
_TEXTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("string_type", "string_sub_type"), "must be a string"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "must be an integer"),
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), "must be a number"),
    "finite_number": "must be a number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be a boolean"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type"), "must be an object"),
    **dict.fromkeys(("dict_type", "mapping_type"), "must be an object"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "must be an array"),
    **dict.fromkeys(("string_too_long", "too_long"), "size must be between 0 and {max_length}"),
    **dict.fromkeys(("string_too_short", "too_short"), "size must be at least {min_length}"),
    "string_pattern_mismatch": "must match {pattern}",
    **dict.fromkeys(("literal_error", "enum"), "must be one of {expected}"),
    "uuid_type": "must be a valid UUID",
    "url_type": "must be a valid URL",
    "is_instance_of": "must be of another type",
    "missing": NOT_NULL,
}
