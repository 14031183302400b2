"""Validation: whether a declaration can be mounted, before it is compared with those of other plugins."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache, singledispatch
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from falcon.routing import CompiledRouter
from falcon.routing.util import SuffixedMethodNotFoundError
from pydantic import BaseModel, PydanticSchemaGenerationError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from plughost._api.declarations import (
    Check,
    Middleware,
    Observer,
    Operation,
    Parameter,
    Response,
    Route,
    RouteGroup,
    Store,
)
from plughost._api.errors import PluginError
from plughost._api.idempotency import store_of
from plughost._api.jobs import Job, next_time
from plughost._apps.mounted import Versions
from plughost._apps.mounting import utc_datetime
from plughost._plugins.signatures import require_function, require_plain, require_responder
from plughost._settings.models import Sites
from plughost.http._errors import Problem

_NESTED: Final = (Route, Operation, Response, Parameter)
_CHECKED_ELSEWHERE: Final = dict.fromkeys(("ErrorFormat", "RequestKind", "RequestRecord", "Traversable"), Any)
_MIDDLEWARE_METHODS: Final = ("process_request", "process_resource", "process_response")
_MAX_DEPTH: Final = 40
_MIN_SECONDS: Final = 0.001
_MAX_SECONDS: Final = 100 * 365.25 * 86400
_LITERAL: Final = "[A-Za-z0-9._~!$&()*+,;=:@-]"
_FIELD: Final = r"\{[^{}:/\s]*(:[^{}(/]*(\([^{}/]*\))?)?\}"
_prefix = re.compile(r"(/[A-Za-z0-9._~-]+)+").fullmatch
# Falcon writes a segment without a field between apostrophes, into the code of its router.
_path = re.compile(rf"(/({_LITERAL}+|(({_LITERAL}|')*{_FIELD})+({_LITERAL}|')*))*").fullmatch
_word = re.compile(r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*").fullmatch


def check(declared: Any) -> None:
    """Refuse a declaration that can't be mounted. The message names it."""
    where = _label(declared)
    _check_types(declared, where)
    if not isinstance(declared, RouteGroup):
        _require(_word(declared.name), f"{where}: a name is made of letters, digits, dots, hyphens and underscores")
    _check(declared, where)


def _label(declared: Any) -> str:
    if isinstance(declared, RouteGroup):
        return f"route group {declared.prefix!r}"
    if isinstance(declared, Route):
        return f"route {declared.path!r}"
    kind = "health check" if isinstance(declared, Check) else type(declared).__name__.lower()
    return f"{kind} {declared.name!r}"


@singledispatch
def _check(declared: Any, where: str) -> None:
    """Check what only this kind of declaration has: here the function of a health check or a page."""
    require_function(declared, "check" if isinstance(declared, Check) else "render", where)


@_check.register
def _(store: Store, where: str) -> None:
    _require(
        hasattr(store.migrations, "joinpath") and hasattr(store.migrations, "iterdir"),
        f'{where}: migrations is no folder, such as importlib.resources.files(__package__) / "migrations": '
        f"{reprlib.repr(store.migrations)}",
    )


@_check.register
def _(middleware: Middleware, where: str) -> None:
    methods = [name for name in _MIDDLEWARE_METHODS if hasattr(middleware.component, name)]
    _require(not inspect.isclass(middleware.component), f"{where}: the component is a class; give an instance")
    _require(methods, f"{where}: the component has none of {', '.join(_MIDDLEWARE_METHODS)}")
    for name in methods:
        require_function(middleware.component, name, where)
    _require_site(middleware.site, where)
    _require(
        middleware.scope != "plugin" or "process_request" not in methods,
        f"{where}: one of scope 'plugin' has no process_request; use process_resource",
    )


@_check.register
def _(observer: Observer, where: str) -> None:
    given = [name for name in ("observe", "observe_times") if getattr(observer, name)]
    _require(given, f"{where}: it has neither observe nor observe_times")
    for name in given:
        require_function(observer, name, where)
    most = observer.at_most
    _require(most is None or most > 0, f"{where}: at_most is no number above 0")


@_check.register
def _(job: Job, where: str) -> None:
    require_function(job, "run", where)
    _require(
        job.every is not None or job.cron is not None or job.at_start,
        f"{where}: it is never due; give it every, cron or at_start",
    )
    _require(job.every is None or job.cron is None, f"{where}: it has every and cron; give it one of them")
    seconds = job.every
    _require(
        seconds is None or _MIN_SECONDS <= seconds <= _MAX_SECONDS,
        f"{where}: every {seconds!r} is no number of seconds from 0.001 to 3155760000, which are 100 years",
    )
    if job.cron is not None:
        try:
            next_time(job, datetime.now(UTC))
        except ValueError as error:
            raise PluginError(f"{where}: {error}") from None


@_check.register
def _(group: RouteGroup, where: str) -> None:
    at_root = group.prefix == "/" and all(route.path == "" for route in group.routes)
    _require(
        at_root or _prefix(group.prefix),
        f"{where}: a prefix is one or more segments, such as /api/v1/products, without fields or a slash at the end; "
        "or / for a route with an empty path, and no other",
    )
    _require_site(group.site, where)
    try:
        Versions(group.versions or ("1.0",))
    except ValueError as error:
        raise PluginError(f"{where}: {error}") from None
    _check_common(group, where)
    _check_format(group, where)
    for route in group.routes:
        _check_route(route, f"{where}: route {route.path!r}")
        depth = sum(map((group.prefix + route.path).count, "/:"))
        # Falcon's router becomes Python code, which each segment indents twice, and a converter once more, up to 100.
        _require(
            depth <= _MAX_DEPTH, f"{where}: a route has {depth} segments and converters; {_MAX_DEPTH} are the most"
        )
    problem = routing_problem([group])
    _require(problem is None, f"{where}: {problem}")


def routing_problem(groups: Iterable[RouteGroup]) -> str | None:
    """Return why Falcon's router refuses some route groups together, or None."""
    templates = [(group.prefix + route.path, route) for group in groups for route in group.routes]
    refused = _refused(templates)
    if refused is None:
        return None
    number, error = refused
    last = templates[number]
    for one in templates[:number]:
        if _refused([one, last]) and not (_refused([one]) or _refused([last])):
            return (
                f"route {last[0]} can't stand beside route {one[0]}: a field at the same place of both needs "
                "the same name and converter"
            )
    return error


def _refused(templates: Iterable[tuple[str, Route]]) -> tuple[int, str] | None:
    """Return the number of the first route that Falcon's router refuses, and its message, or None.

    Only routes with the same path up to their first field can clash. Each such path has a router of its own, since
    Falcon compares a route with all that are beside it.
    """
    routers: defaultdict[str, CompiledRouter] = defaultdict(CompiledRouter)
    for number, (template, route) in enumerate(templates):
        try:
            routers[_before_fields(template)].add_route(template, route.resource, suffix=route.suffix)
        except (ValueError, TypeError) as error:
            return number, f"route {template}: {' '.join(str(error).split())}"
    return None


def _before_fields(template: str) -> str:
    """Return the segments of a template before the first one with a field."""
    before, field, _ = template.partition("{")
    return before.rpartition("/")[0] if field else template


def _check_format(group: RouteGroup, where: str) -> None:
    """Refuse an error format that can't render an error."""
    try:
        written = group.errors.render(Problem(404, "Not Found", "There is nothing at this address."))
        usable = isinstance(written, bytes) and isinstance(group.errors.media_type, str)
        usable = usable and isinstance(group.errors.validation_status, int)
    except Exception as error:  # noqa: BLE001 - the format is a plugin's code
        raise PluginError(f"{where}: its error format can't be used: {error!r}") from None
    _require(usable, f"{where}: its error format doesn't return bytes, or lacks media_type or validation_status")


def _check_route(route: Route, where: str) -> None:
    _require(
        _path(route.path),
        f"{where}: a path is empty, or segments such as /{{sku}}, each after a slash and none at the end; an "
        "apostrophe needs a field in its segment, and a field has no slash",
    )
    _require(not inspect.isclass(route.resource), f"{where}: the resource is a class; give an instance")
    resource = type(route.resource).__name__
    try:
        methods = CompiledRouter().map_http_methods(route.resource, suffix=route.suffix)
    except ValueError as error:
        raise PluginError(f"{where}: {error}") from None
    except SuffixedMethodNotFoundError:
        raise PluginError(
            f"{where}: {resource} has no responder with the suffix {route.suffix!r}, such as on_get_{route.suffix}",
        ) from None
    _require(
        "WEBSOCKET" not in methods,
        f"{where}: {resource} has on_websocket, and plughost serves no WebSockets: send to pages with "
        "plughost.http.send_events, take what they send by POST, and remove it",
    )
    for method, responder in methods.items():
        name = getattr(responder, "__name__", f"on_{method.lower()}")
        require_plain(responder, f"{where}: {name} of {resource}")
        require_responder(route, method, responder, f"{where}: {name} of {resource}")
    for method, operation in route.operations.items():
        _check_operation(operation, f"{where}: {method}")
        _require(method.isupper(), f"{where}: its operations have the key {method!r}: write methods in capitals")
    missing = sorted(set(methods) - set(route.operations) - {"HEAD", "OPTIONS"})
    _require(
        not missing,
        f"{where}: {resource} answers {', '.join(missing)}, which the operations of the Route lack: add an "
        "Operation for each",
    )
    surplus = sorted(set(route.operations) - set(methods))
    _require(not surplus, f"{where}: {resource} has no responder for {', '.join(surplus)}, which its Route declares")
    _require(methods, f"{where}: {resource} has no responder such as on_get")


def _check_common(declared: Operation | RouteGroup, where: str) -> None:
    """Check the fields that an operation has, or a group for all of its operations."""
    for name in ("deprecated", "sunset"):
        day = getattr(declared, name)
        is_naive = isinstance(day, datetime) and day.tzinfo is None
        _require(not is_naive, f"{where}: {name} {day} has no zone: add tzinfo=datetime.UTC, or give a date")
    deprecated, sunset = declared.deprecated, declared.sunset
    _require(
        deprecated is None or sunset is None or utc_datetime(deprecated) <= utc_datetime(sunset),
        f"{where}: its sunset {sunset} is before {deprecated}, from when on it is deprecated (RFC 9745)",
    )
    is_link = not any(each in declared.successor for each in '<>" \r\n')
    _require(is_link, f"{where}: its successor {declared.successor!r} is no URL or path")
    limit = declared.body_limit
    _require(limit is None or limit > 0, f"{where}: body_limit {limit!r} is no size in bytes")


def _check_operation(operation: Operation, where: str) -> None:
    _check_common(operation, where)
    for each in operation.security:
        _require(each == each.lower(), f"{where}: write the security scheme {each!r} in lower case: {each.lower()!r}")
    for name in ("produces", "consumes"):
        for each in getattr(operation, name):
            _require(each.count("/") == 1, f"{where}: {name} {each!r}, which is no media type")
    problem = _schema_problem(operation.request, "validation")
    model = _name(operation.request)
    _require(problem is None, f"{where}: the model {model} of the request can't be described: {problem}")
    for status, response in operation.responses.items():
        models = response.model.values() if isinstance(response.model, Mapping) else (response.model,)
        for each in models if response.schema is None else ():
            problem = _schema_problem(each, "serialization")
            _require(
                problem is None,
                f"{where}: the model {_name(each)} of the response {status} can't be described: {problem}, "
                "or the response a schema",
            )


def _name(model: Any) -> str:
    return getattr(model, "__name__", str(model))


def _schema_problem(model: Any, mode: Literal["validation", "serialization"]) -> str | None:
    """Return why a type has no JSON Schema, after the name of the field that causes it, or None."""
    if model is None:
        return None
    try:
        TypeAdapter(model).json_schema(mode=mode)
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError) as error:
        for name, field in getattr(model, "model_fields", {}).items():
            if (problem := _schema_problem(field.rebuild_annotation(), mode)) is not None:
                return f"{name}: {problem}"
        cause = error.message.partition(". ")[0]  # the rest is advice for authors of pydantic types
        return f"{cause}; give the field another type"
    except Exception:  # noqa: BLE001 - pydantic raises anything for what is not a type
        return "it is no type that pydantic knows"
    return None


def _require(condition: object, message: str) -> None:
    if not condition:
        raise PluginError(message)


def _require_site(site: object, where: str) -> None:
    known = ", ".join(Sites.model_fields)
    _require(site in Sites.model_fields, f"{where}: there is no site {site!r}; sites are {known}")


def require_idempotency_store(declared: object, plugin: str, stores: Collection[str]) -> None:
    """Refuse a group with idempotent operations if there is no store for their responses."""
    if isinstance(declared, RouteGroup) and store_of(plugin) not in stores:
        operations = [operation for route in declared.routes for operation in route.operations.values()]
        _require(
            not any(operation.idempotent for operation in operations),
            f"route group {declared.prefix!r}: it has idempotent operations, and no store for their answers: return "
            f"plughost.stores.idempotency_store({plugin!r}) from register_stores",
        )


def _check_types(declared: Any, where: str) -> None:
    """Refuse a declaration with a value that is not of the type of its field.

    A status or a folder given as text would fail inside the host, for all plugins at once.
    """
    hints = _type_hints(declared.__class__)
    for each in fields(declared):
        value = getattr(declared, each.name)
        if not _has_type(value, hints.get(each.name, Any)):
            raise PluginError(f"{where}: {each.name} must be {each.type}, not {reprlib.repr(value)}")
        items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else ()
        if isinstance(value, tuple | list):
            items = ((_label(item), item) for item in value if isinstance(item, _NESTED))
        for label, item in items:
            if isinstance(item, _NESTED):
                _check_types(item, f"{where}: {label}")


@cache
def _type_hints(kind: type) -> Mapping[str, Any]:
    own = next(each for each in kind.__mro__ if each.__module__.startswith("plughost._api."))  # a plugin may add fields
    return get_type_hints(own, localns=_CHECKED_ELSEWHERE | {"BaseModel": BaseModel})


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type. A list may stand for a tuple, and an integer for a float."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_has_type(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is type:
        return isinstance(value, type) and issubclass(value, inner)
    if origin in (tuple, frozenset):
        kinds = tuple | list if origin is tuple else AbstractSet
        return isinstance(value, kinds) and all(_has_type(each, inner[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _has_type(each, kind) for item in value.items() for each, kind in zip(item, inner, strict=True)
        )
    is_truth_for_number = hint in (int, float) and isinstance(value, bool)
    is_instance = hint is Any or isinstance(value, (int, float) if hint is float else origin or hint)
    return is_instance and not is_truth_for_number
