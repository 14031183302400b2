"""How to try each mounted operation: a link that opens it, or a command that calls it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from plughost_dev_console.bodies import body_of

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    body = body_of(operation)
    words = ["curl"] + (["-X", method] if method != "GET" and (method != "POST" or body is None) else [])
    if "{" in url:
        words.append("-g")
    words.append(shlex.quote(url))
    if "basic" in operation.security:
        words.append("-u EMAIL:PASSWORD")
    elif "bearer" in operation.security:
        words.append('-H "Authorization: Bearer $TOKEN"')
    if body is not None:
        words.append(body.options)
    return " ".join(words)
