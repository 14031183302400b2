"""Check: whether what an operation declares can be true, and whether its responder can be called with it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from inspect import Parameter as Argument
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import PydanticSchemaGenerationError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from plughost._api.declarations import Operation
from plughost._apps.mounting import BEARER, moment
from plughost._apps.parameters import Reader

if TYPE_CHECKING:
    from plughost._api.declarations import Route, RouteGroup

_field: Final = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
_NAMED: Final = (Argument.POSITIONAL_OR_KEYWORD, Argument.KEYWORD_ONLY)


def problem_of(declared: Operation | RouteGroup) -> str | None:
    """Return what is wrong with an operation, or with what a group declares for all of its, and what to do."""
    wrong = _of_both(declared)
    if isinstance(declared, Operation):
        wrong = chain(wrong, _of_operation(declared))
    return next(wrong, None)


def _of_both(declared: Operation | RouteGroup) -> Iterator[str]:
    for name in ("deprecated", "sunset"):
        day = getattr(declared, name)
        if day is not None and not isinstance(day, date):
            yield f"{name} {day!r} is no date: write datetime.date(2027, 1, 31)"
        elif isinstance(day, datetime) and day.tzinfo is None:
            yield f"{name} {day} has no zone: add tzinfo=datetime.UTC, or give a date"
    deprecated, sunset = declared.deprecated, declared.sunset
    if deprecated is not None and sunset is not None and moment(sunset) < moment(deprecated):
        yield f"its sunset {sunset} is before {deprecated}, from when on it is deprecated (RFC 9745)"
    if any(each in declared.successor for each in '<>" \r\n'):
        yield f"its successor {declared.successor!r} is no URL or path"
    limit = declared.body_limit
    if limit is not None and (type(limit) is not int or limit <= 0):
        yield f"body_limit {limit!r} is no size in bytes"


def _of_operation(operation: Operation) -> Iterator[str]:
    for each in operation.consumes:
        if each.count("/") != 1:
            yield f"consumes {each!r}, which is no media type"
    problem = _of_model(operation.request, "validation")
    if problem is not None:
        yield f"the model {_name(operation.request)} of the request can't be described: {problem}"
    for status, response in operation.responses.items():
        models = response.model.values() if isinstance(response.model, Mapping) else (response.model,)
        for model in models if response.schema is None else ():
            problem = _of_model(model, "serialization")
            if problem is not None:
                described = f"the model {_name(model)} of the response {status} can't be described"
                yield f"{described}: {problem}, or the response a schema"


def _name(model: Any) -> str:
    return getattr(model, "__name__", str(model))


def _of_model(model: Any, mode: Literal["validation", "serialization"]) -> str | None:
    """Return why a type has no JSON Schema, with the field of the model that is to blame first."""
    if model is None:
        return None
    try:
        TypeAdapter(model).json_schema(mode=mode)
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError) as error:
        for name, field in getattr(model, "model_fields", {}).items():
            if (problem := _of_model(field.rebuild_annotation(), mode)) is not None:
                return f"{name}: {problem}"
        cause = error.message.partition(". ")[0]  # what follows is advice for who writes pydantic types
        return f"{cause}; give the field another type"
    except Exception:  # noqa: BLE001 - of what is no type at all, pydantic raises anything
        return "it is no type that pydantic knows"
    return None


def misfit(route: Route, method: str, responder: Callable[..., object]) -> str | None:
    """Return why an operation can't be served as it is declared, and what to do. None where it can."""
    fields = _field.findall(route.path)
    operation = route.operations.get(method)
    readers: list[Reader] = []
    for declared in operation.parameters if operation is not None else ():
        try:
            readers.append(Reader(declared))
        except (ValueError, TypeError, AttributeError) as error:
            return f"the parameter {declared.name!r} can't be enforced: {error}"
    return next(_of_parameters(operation, readers, fields), None) or next(_of_call(responder, readers, fields), None)


def _of_parameters(operation: Operation | None, readers: list[Reader], fields: list[str]) -> Iterator[str]:
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


def _of_call(responder: Callable[..., object], readers: list[Reader], fields: list[str]) -> Iterator[str]:
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
