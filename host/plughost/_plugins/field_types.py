"""Validation of field types: whether each value in a declaration has the type of its field.

Without it, a status or a folder given as text would fail inside the host, for all plugins at once.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import Any, Final

from plughost._api.declarations import Operation, Parameter, Response, Route

_NESTED: Final = (Route, Operation, Response, Parameter)
TypeCheck = Callable[[Any], bool]


def type_problem(declared: Any) -> str | None:
    """Return which value in a declaration has a wrong type, and the right type, or None."""
    return next(_type_problems(declared), None)


def _type_problems(declared: Any) -> Iterator[str]:
    for each in fields(declared):
        type_name, has_type = _FIELD_TYPES.get(str(each.type), ("", None))
        value = getattr(declared, each.name)
        if has_type is not None and not has_type(value):
            yield f"{each.name} is no {type_name}: {reprlib.repr(value)}"
            continue
        items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else ()
        if isinstance(value, tuple | list):
            items = ((_label(item), item) for item in value)
        for label, item in items:
            if isinstance(item, _NESTED):
                yield from (f"{label}: {problem}" for problem in _type_problems(item))


def _label(item: Any) -> str:
    return f"route {item.path!r}" if isinstance(item, Route) else f"parameter {getattr(item, 'name', '')!r}"


def _instance_of(*kinds: type) -> TypeCheck:
    return lambda value: isinstance(value, kinds)


def _sequence_of(kind: type) -> TypeCheck:
    return lambda value: isinstance(value, tuple | list) and all(isinstance(each, kind) for each in value)


def _mapping_of(key: type, kind: type = object) -> TypeCheck:
    return lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(name, key) and isinstance(each, kind) for name, each in value.items())
    )


def _is_kinds(value: object) -> bool:
    return isinstance(value, AbstractSet) and value <= {"live", "ready", "started"}


def _is_folder(value: object) -> bool:
    return hasattr(value, "joinpath") and hasattr(value, "iterdir")


_FIELD_TYPES: Final[Mapping[str, tuple[str, TypeCheck]]] = {
    "str": ("text", _instance_of(str)),
    "str | None": ("text or None", _instance_of(str, type(None))),
    "bool": ("bool", _instance_of(bool)),
    "int | None": ("integer or None", _instance_of(int, type(None))),
    "frozenset[Literal['live', 'ready', 'started']]": ("set of live, ready or started", _is_kinds),
    "tuple[str, ...]": ("tuple of texts", _sequence_of(str)),
    "tuple[int, ...]": ("tuple of integers", _sequence_of(int)),
    "tuple[Parameter, ...]": ("tuple of Parameter", _sequence_of(Parameter)),
    "tuple[Route, ...]": ("tuple of Route", _sequence_of(Route)),
    "Mapping[str, Operation]": ("mapping of methods to Operation", _mapping_of(str, Operation)),
    "Mapping[int, Response]": ("mapping of statuses, which are integers, to Response", _mapping_of(int, Response)),
    "Mapping[str, str]": ("mapping of texts to texts", _mapping_of(str, str)),
    "Mapping[str, Any]": ("mapping with texts as keys", _mapping_of(str)),
    "Mapping[str, Any] | None": ("mapping with texts as keys", lambda value: value is None or _mapping_of(str)(value)),
    "Traversable": ('folder, such as importlib.resources.files(__package__) / "migrations"', _is_folder),
}
"""The name and the check of a type, by the field's annotation. Other fields are checked elsewhere."""
