"""Values that no setting can have, although pydantic takes them: `true` for a number, or a size with a rest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ByteSize
from pydantic_core import ErrorDetails

_SIZE: Final = re.compile(r"\s*[\d_]*\.?\d+\s*[A-Za-z]*\s*")


def misfits(annotation: object, value: object, *above: str | int) -> Iterator[ErrorDetails]:
    """Yield an error, as pydantic does, for each value in a table that the annotations of a model don't mean."""
    types = [*_types(annotation)]
    if isinstance(value, Mapping):
        models = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        fields = {name: info.annotation for model in models for name, info in model.model_fields.items()}
        tables = [get_args(each)[1] for each in types if get_origin(each) in {dict, Mapping}]
        for key, inner in value.items():
            yield from misfits(tables[0] if tables else fields.get(key, annotation), inner, *above, key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from misfits(annotation, inner, *above, index)
    elif message := _misfit(value, types):
        yield ErrorDetails(type="value_error", loc=above, msg=f"Value error, {message}", input=None)


def _types(annotation: Any) -> Iterator[object]:
    """Yield an annotation, its members and their members, such as int, list and None of `list[int] | None`."""
    yield annotation
    for each in get_args(annotation):
        yield from _types(each)


def _misfit(value: object, types: Collection[object]) -> str | None:
    """Return why no setting of these types can have a value, or None."""
    if isinstance(value, bool):
        numbers = [each for each in types if isinstance(each, type) and issubclass(each, int | float | Decimal)]
        return f"must be a number, not {str(value).lower()}" if numbers and bool not in types else None
    if not isinstance(value, str):
        return None
    if "\0" in value:
        return "must not contain the character U+0000"
    if not value and Path in types:
        return 'must not be empty: leave it out, or write "." for the folder of the settings'
    # pydantic reads the beginning of a text alone: it takes "10,5 MB" for 10 bytes.
    if ByteSize in types and str not in types and _SIZE.fullmatch(value) is None:
        return 'must be a size in bytes, or one with a unit, such as "10 MB"'
    return None
