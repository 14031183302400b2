"""Validation of signatures: whether the host can call functions and responders as it does."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter as Argument
from typing import TYPE_CHECKING, Final

from plughost._api.errors import PluginError
from plughost._apps.mounting import BEARER, signature_of
from plughost._apps.parameters import ParameterReader

if TYPE_CHECKING:
    from plughost._api.declarations import Route

_field: Final = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
_NAMED: Final = (Argument.POSITIONAL_OR_KEYWORD, Argument.KEYWORD_ONLY)
_ARGUMENTS: Final[Mapping[str, str]] = {
    "process_request": "req, resp",
    "process_resource": "req, resp, resource, params",
    "process_response": "req, resp, resource, req_succeeded",
    "observe": "requests",
    "observe_times": "times",
    "run": "job_run",
    "check": "",
    "render": "",
}
"""What the host calls a function of a declaration with."""


def require_function(declared: object, name: str, where: str) -> None:
    """Refuse a declaration if the host can't call its function of this name as it does."""
    function = getattr(declared, name)
    if not callable(function):
        raise PluginError(f"{where}: {name} is no function")
    require_plain(function, f"{where}: {name}")
    try:
        signature = signature_of(function, follow_wrapped=False)
    except ValueError:  # a function in C may have none
        return
    arguments = _ARGUMENTS[name]
    try:
        signature.bind(*filter(None, arguments.split(", ")))
    except TypeError:
        raise PluginError(f"{where}: {name} is called with ({arguments}), and takes {signature}") from None


def require_plain(function: object, where: str) -> None:
    """Refuse an async function and a generator: both return before anything in them has run."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise PluginError(
            f"{where} is async, and plughost serves WSGI, in threads without an event loop: use plain def, which may "
            "wait"
        )
    if inspect.isgeneratorfunction(function):
        raise PluginError(f"{where} contains yield, so a call would run nothing of it")


def require_responder(route: Route, method: str, responder: Callable[..., object], where: str) -> None:
    """Refuse an operation that can't be served as declared."""
    fields = _field.findall(route.path)
    operation = route.operations.get(method)
    readers: list[ParameterReader] = []
    for declared in operation.parameters if operation is not None else ():
        try:
            readers.append(ParameterReader(declared))
        except (ValueError, TypeError, AttributeError) as error:
            raise PluginError(f"{where}: the parameter {declared.name!r} can't be enforced: {error}") from None
    _check_parameters(readers, fields, where)
    if operation is not None and operation.roles and BEARER not in operation.security:
        raise PluginError(f"{where}: it declares roles, which only the security {BEARER!r} has: declare that, too")
    _check_signature(responder, readers, fields, where)


def _check_parameters(readers: list[ParameterReader], fields: list[str], where: str) -> None:
    used_arguments: set[str] = set()
    for reader in readers:
        name, argument, is_in_path = reader.declared.name, reader.argument, reader.declared.place == "path"
        if is_in_path and name not in fields:
            raise PluginError(
                f"{where}: it declares the path parameter {name!r}, which the path lacks: rename or remove it"
            )
        if argument in used_arguments or (not is_in_path and argument in fields):
            raise PluginError(f"{where}: two of its parameters would be the argument {argument!r}: rename one")
        used_arguments.add(argument)


def _check_signature(
    responder: Callable[..., object], readers: list[ParameterReader], fields: list[str], where: str
) -> None:
    """Refuse a responder whose signature differs from the arguments of its call.

    A decorator, such as a Falcon hook, may add further arguments.
    """
    try:
        is_decorated = hasattr(responder, "__wrapped__")
        arguments = list(signature_of(responder, follow_wrapped=False).parameters.values())
    except (ValueError, TypeError):  # not a Python function
        return
    kinds = {each.kind for each in arguments}
    positional = [each for each in arguments if each.kind in (Argument.POSITIONAL_ONLY, Argument.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2 and Argument.VAR_POSITIONAL not in kinds:
        raise PluginError(f"{where}: it is called with a request and a response: write (self, req, resp)")
    extra_arguments = [each for each in arguments if each.kind in _NAMED and each not in positional[:2]]
    names = {each.name for each in extra_arguments}
    for name in fields if Argument.VAR_KEYWORD not in kinds else ():
        if name not in names:
            raise PluginError(
                f"{where}: it lacks the argument {name!r}, a field of the path: write (self, req, resp, {name})"
            )
    provided = {*fields, *(reader.argument for reader in readers)}
    for each in extra_arguments if not is_decorated else ():
        if each.name not in provided and each.default is Argument.empty:
            raise PluginError(
                f"{where}: its argument {each.name!r} is neither a field of the path nor a declared parameter:"
                " declare it, give it a default, or remove it"
            )
