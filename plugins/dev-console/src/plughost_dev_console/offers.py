"""How to try each mounted operation: a link that opens it, or a command that calls it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plughost import HostView, Operation, PluginView

FIELD: Final = re.compile(r"\{(\w+)[^{}]*\}")
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An operation, and how to try it.

    Attributes:
        path: The URI template.
        access: The required credentials, for people; empty if there are none.
        link: The URL to open in a browser; empty if the operation needs more than a URL.
        command: A curl command.
    """

    plugin: str
    site: str
    method: str
    path: str
    summary: str
    access: str
    link: str
    command: str

    @property
    def form(self) -> str:
        """The path of the console's form for it, below the console's prefix."""
        return f"/try?{urlencode({'site': self.site, 'method': self.method, 'path': self.path})}"


def offers(host: HostView, plugin: PluginView, name: str) -> Iterator[Offer]:
    """Yield each operation of a plugin. `name` is the host's name in links."""
    for site, view in host.sites.items():
        base = address(host, site, name)
        groups = [group for owner, group in view.groups if owner == plugin.name]
        for path, route in [(group.prefix + route.path, route) for group in groups for route in group.routes]:
            for method in sorted(set(route.operations) & set(_METHODS), key=_METHODS.index):
                operation = route.operations[method]
                needs_more = FIELD.search(path) or operation.security
                yield Offer(
                    plugin=plugin.name,
                    site=site,
                    method=method,
                    path=path,
                    summary=operation.summary,
                    access=_access(operation),
                    link=base + path if method == "GET" and not needs_more else "",
                    command=_command(method, base, path, operation),
                )


def address(host: HostView, site: str, name: str, scheme: str = "") -> str:
    """Return the URL of a site on this machine, with a given scheme, or over plain HTTP if possible."""
    listeners = host.listeners.items()
    found = sorted((each.scheme, port) for each, port in listeners if each.site == site and scheme in ("", each.scheme))
    return f"{found[0][0]}://{name}:{found[0][1]}" if found else ""


def _access(operation: Operation) -> str:
    if "bearer" not in operation.security:
        return "e-mail and password" if operation.security else ""
    return f"a token with the role {' or '.join(operation.roles)}" if operation.roles else "a token"


def _command(method: str, base: str, path: str, operation: Operation) -> str:
    examples = {
        each.name: each.schema.get("examples") or each.schema.get("enum")
        for each in operation.parameters
        if each.place == "path"
    }

    def filled(found: re.Match[str]) -> str:
        values = examples.get(found[1])
        return quote(str(values[0]), safe="") if values else f"{{{found[1]}}}"

    url = base + FIELD.sub(filled, path)
    words = ["curl"] + (["-X", method] if method != "GET" and (method != "POST" or operation.request is None) else [])
    if "{" in url:
        words.append("-g")
    words.append(shlex.quote(url))
    if "basic" in operation.security:
        words.append("-u EMAIL:PASSWORD")
    elif "bearer" in operation.security:
        words.append('-H "Authorization: Bearer $TOKEN"')
    if operation.request is not None:
        words.append("-H 'Content-Type: application/json'")
        words.append(f"-d {shlex.quote(example_of(operation))}")
    return " ".join(words)


def example_of(operation: Operation, indent: int | None = None) -> str:
    """Return an example of an operation's body as JSON: a declared one, or one generated from its model."""
    example = next(iter(operation.examples.values()), None)
    if example is None and operation.request is not None:
        try:
            example = _of_schema(operation.request.model_json_schema())
        except Exception:  # noqa: BLE001 - a plugin's model may have no schema
            example = {}
    return json.dumps(example, default=_plain, ensure_ascii=False, indent=indent)


def _of_schema(schema: Mapping[str, Any]) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    if "properties" in schema:
        required = schema.get("required", schema["properties"])
        return {name: _of_schema(each) for name, each in schema["properties"].items() if name in required}
    if "default" in schema:
        return schema["default"]
    kind = schema.get("type") or next(
        (each.get("type") for each in schema.get("anyOf", ()) if "type" in each), "string"
    )
    return {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "null": None}.get(kind, {})


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)
