"""Check: whether a responder can be called with what its operation declares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from inspect import Parameter as Argument
from typing import TYPE_CHECKING, Final

from plughost._apps.mounting import BEARER
from plughost._apps.parameters import ParameterReader

if TYPE_CHECKING:
    from plughost._api.declarations import Operation, Route

_field: Final = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
_NAMED: Final = (Argument.POSITIONAL_OR_KEYWORD, Argument.KEYWORD_ONLY)


def misfit(route: Route, method: str, responder: Callable[..., object]) -> str | None:
    """Return why an operation can't be served as it is declared, and what to do. None where it can."""
    fields = _field.findall(route.path)
    operation = route.operations.get(method)
    readers: list[ParameterReader] = []
    for declared in operation.parameters if operation is not None else ():
        try:
            readers.append(ParameterReader(declared))
        except (ValueError, TypeError, AttributeError) as error:
            return f"the parameter {declared.name!r} can't be enforced: {error}"
    return next(_of_parameters(operation, readers, fields), None) or next(_of_call(responder, readers, fields), None)


def _of_parameters(operation: Operation | None, readers: list[ParameterReader], fields: list[str]) -> Iterator[str]:
    """Yield what is wrong with the parameters and the roles of an operation."""
    seen: set[str] = set()
    for reader in readers:
        declared = reader.declared
        if declared.place not in ("path", "query", "header"):
            yield f"the parameter {declared.name!r} has no place {declared.place!r}: it is path, query or header"
        if declared.place == "path" and declared.name not in fields:
            yield f"it declares the path parameter {declared.name!r}, which the path lacks: rename or remove it"
        if reader.argument in seen or (declared.place != "path" and reader.argument in fields):
            yield f"two of its parameters would be the argument {reader.argument!r}: rename one"
        seen.add(reader.argument)
    if operation is not None and operation.roles and BEARER not in operation.security:
        yield f"it declares roles, which only the security {BEARER!r} has: declare that, too"


def _of_call(responder: Callable[..., object], readers: list[ParameterReader], fields: list[str]) -> Iterator[str]:
    """Yield how a responder's arguments differ from what it is called with.

    What decorates a responder, such as a hook of Falcon's, may add arguments of its own.
    """
    try:
        is_decorated = hasattr(responder, "__wrapped__")
        arguments = list(inspect.signature(responder, follow_wrapped=False).parameters.values())
    except (ValueError, TypeError):  # it is no Python
        return
    kinds = {each.kind for each in arguments}
    positional = [each for each in arguments if each.kind in (Argument.POSITIONAL_ONLY, Argument.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2 and Argument.VAR_POSITIONAL not in kinds:
        yield "it is called with a request and a response: write (self, req, resp)"
    further = [each for each in arguments if each.kind in _NAMED and each not in positional[:2]]
    names = {each.name for each in further}
    if Argument.VAR_KEYWORD not in kinds:
        for name in fields:
            if name not in names:
                yield f"it lacks the argument {name!r}, a field of the path: write (self, req, resp, {name})"
    given = {*fields, *(reader.argument for reader in readers)}
    for each in further if not is_decorated else ():
        if each.name not in given and each.default is Argument.empty:
            yield (
                f"its argument {each.name!r} is neither a field of the path nor a declared parameter:"
                " declare it, give it a default, or remove it"
            )
