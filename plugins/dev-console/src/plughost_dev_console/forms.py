"""Forms for trying operations, generated from their declarations, and the requests made from them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from plughost import Parameter
from plughost_dev_console.bodies import body_of
from plughost_dev_console.offers import FIELD

if TYPE_CHECKING:
    from plughost import HostView, Operation, RouteGroup

_ORDER: Final = ("path", "query", "header")
LOGIN: Final = "login:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A request to send, to a listener of this host.

    Attributes:
        target: Path and query.
        headers: Its headers without credentials.
        authorization: The header `Authorization`. Empty for none.
    """

    site: str
    scheme: str
    method: str
    target: str
    headers: Mapping[str, str]
    authorization: str = ""
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A field of a form, for a parameter.

    Attributes:
        name: Its name in the form, such as `query:page`.
        choices: The allowed values; empty for any.
        value: Its initial value.
        hint: The placeholder.
        required: Whether it is required.
    """

    parameter: Parameter
    name: str
    choices: tuple[str, ...]
    value: str
    hint: str
    required: bool


def find(host: HostView, site: str, method: str, path: str) -> tuple[str, RouteGroup, Operation] | None:
    """Return the plugin, group and operation for a site, method and URI template, or None."""
    view = host.sites.get(site)
    for plugin, group in view.groups if view is not None else ():
        for route in group.routes:
            if group.prefix + route.path == path and method in route.operations:
                return plugin, group, route.operations[method]
    return None


def inputs(group: RouteGroup, operation: Operation, path: str, given: Mapping[str, str]) -> list[Input]:
    """Return the fields of an operation's form: of the path, the query, then headers. `given` is previous input."""
    declared = {(each.place, each.name): each for each in operation.parameters}
    for name in FIELD.findall(path):
        declared.setdefault(("path", name), Parameter(name=name, place="path", description=""))
    if group.versions:
        schema = {"type": "string", "enum": list(group.versions)}
        about = "The requested minor version; by default the newest."
        declared.setdefault(
            ("header", "API-Version"), Parameter(name="API-Version", place="header", description=about, schema=schema)
        )
    return [
        _input(each, given) for each in sorted(declared.values(), key=lambda parameter: _ORDER.index(parameter.place))
    ]


def outgoing(site: str, method: str, path: str, operation: Operation, form: Mapping[str, str]) -> Outgoing:
    """Return the request for a submitted form, without a demo account's token. `path` is the URI template."""
    target = FIELD.sub(lambda field: quote(form.get(f"path:{field[1]}", ""), safe=""), path)
    # Each line of a query's field is a value.
    queries = [(name[6:], value.splitlines()) for name, value in form.items() if name.startswith("query:")]
    query = urlencode([(name, each) for name, values in queries for each in values if each])
    headers = {name[7:]: value for name, value in form.items() if name.startswith("header:") and value}
    example = body_of(operation)
    if example is not None:
        headers["Content-Type"] = example.media_type
    return Outgoing(
        site=site,
        scheme="https" if form.get("scheme") == "https" else "http",
        method=method,
        target=f"{target}?{query}" if query else target,
        headers=headers,
        authorization=_authorization(form),
        body=None if example is None else form.get("body", "").encode(),
    )


def _authorization(form: Mapping[str, str]) -> str:
    if form.get("account") == "token" and form.get("token"):
        return f"Bearer {form['token'].strip()}"
    if form.get("user"):
        pair = f"{form['user']}:{form.get('password', '')}".encode()
        return f"Basic {b64encode(pair).decode()}"
    return ""


def _written(value: object) -> str:
    """Format an example as form input; of a list, only the first value."""
    return str(next(iter(value), "")) if isinstance(value, list | tuple) else str(value)


def _input(parameter: Parameter, given: Mapping[str, str]) -> Input:
    schema = parameter.schema
    name = f"{parameter.place}:{parameter.name}"
    choices = tuple(str(each) for each in schema.get("enum", ()))
    if schema.get("type") == "boolean":
        choices = ("true", "false")
    examples = [_written(each) for each in schema.get("examples", ())]
    required = parameter.required or parameter.place == "path"
    default = _written(schema["default"]) if schema.get("default") is not None else ""
    first = (examples or choices or ("",))[0] if required else ""
    return Input(
        parameter=parameter,
        name=name,
        choices=choices,
        value=given.get(name, first),
        hint=(f"default {default}" if default else f"such as {examples[0]}" if examples else ""),
        required=required,
    )
