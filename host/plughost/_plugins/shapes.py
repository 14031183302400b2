"""Check: whether each value of a declaration is of the type that the declaration gives it.

Without it, a status as text or a folder as text fails in the middle of the host's own work, for all plugins at once.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from plughost._api.declarations import Operation, Parameter, Response, Route

_NESTED: Final = (Route, Operation, Response, Parameter)
Fits = Callable[[Any], bool]


def misshapen(declared: Any) -> str | None:
    """Return which value of a declaration, or of one in it, is of another type, and what it is to be."""
    return next(_misshapen(declared), None)


def _misshapen(declared: Any) -> Iterator[str]:
    for each in fields(declared):
        words, fits = _SHAPES.get(str(each.type), ("", None))
        value = getattr(declared, each.name)
        if fits is not None and not fits(value):
            yield f"{each.name} is no {words}: {reprlib.repr(value)}"
        elif isinstance(value, Mapping):
            yield from (f"{key}: {wrong}" for key, item in value.items() for wrong in _of_item(item))
        elif isinstance(value, tuple | list):
            yield from (f"{_label(item)}: {wrong}" for item in value for wrong in _of_item(item))


def _of_item(item: object) -> Iterator[str]:
    if isinstance(item, _NESTED):
        yield from _misshapen(item)


def _label(item: Any) -> str:
    return f"route {item.path!r}" if isinstance(item, Route) else f"parameter {getattr(item, 'name', '')!r}"


def _one(*kinds: type) -> Fits:
    return lambda value: isinstance(value, kinds)


def _some(kind: type) -> Fits:
    return lambda value: isinstance(value, tuple | list) and all(isinstance(each, kind) for each in value)


def _table(key: type, kind: type = object) -> Fits:
    return lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(name, key) and isinstance(each, kind) for name, each in value.items())
    )


def _is_folder(value: object) -> bool:
    return hasattr(value, "joinpath") and hasattr(value, "iterdir")


_SHAPES: Final[Mapping[str, tuple[str, Fits]]] = {
    "str": ("text", _one(str)),
    "str | None": ("text or None", _one(str, type(None))),
    "bool": ("bool", _one(bool)),
    "int | None": ("integer or None", _one(int, type(None))),
    "tuple[str, ...]": ("tuple of texts", _some(str)),
    "tuple[int, ...]": ("tuple of integers", _some(int)),
    "tuple[Parameter, ...]": ("tuple of Parameter", _some(Parameter)),
    "tuple[Route, ...]": ("tuple of Route", _some(Route)),
    "Mapping[str, Operation]": ("mapping of methods to Operation", _table(str, Operation)),
    "Mapping[int, Response]": ("mapping of statuses, which are integers, to Response", _table(int, Response)),
    "Mapping[str, str]": ("mapping of texts to texts", _table(str, str)),
    "Mapping[str, Any]": ("mapping with texts as keys", _table(str)),
    "Mapping[str, Any] | None": ("mapping with texts as keys", lambda value: value is None or _table(str)(value)),
    "Traversable": ('folder, such as importlib.resources.files(__package__) / "migrations"', _is_folder),
}
"""By the annotation of a field: what its value is called, and whether one is that. Other fields have other checks."""
