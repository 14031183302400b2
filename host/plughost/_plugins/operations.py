"""Check: whether what an operation declares of itself can be true, whatever its responder is like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PydanticSchemaGenerationError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from plughost._api.declarations import Operation
from plughost._apps.mounting import moment

if TYPE_CHECKING:
    from plughost._api.declarations import RouteGroup


def problem_of(declared: Operation | RouteGroup) -> str | None:
    """Return what is wrong with an operation, or with what a group declares for all of its, and what to do."""
    parts = [_of_future(declared), _of_body(declared)]
    if isinstance(declared, Operation):
        parts.append(_of_operation(declared))
    return next(chain(*parts), None)


def _of_future(declared: Operation | RouteGroup) -> Iterator[str]:
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


def _of_body(declared: Operation | RouteGroup) -> Iterator[str]:
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
