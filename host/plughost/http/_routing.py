"""Routing by the raw path, so that `%2F` is data and only a literal slash separates (CONTRACT 2)."""

from __future__ import annotations

import difflib
import functools
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, unquote_to_bytes

import falcon
from falcon.responders import create_default_options
from falcon.routing import CompiledRouter
from falcon.routing.converters import DateTimeConverter

from plughost.http._environ import MOUNTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from plughost._apps.mounted import MountedRoute
    from plughost.http._request import Request

MAX_ID: Final = 2**63 - 1
MAX_TARGET_BYTES: Final = 8192
"""Bytes of path and query that are accepted: responses repeat them in links, and clients limit the size of a head."""
_LONG_PATH: Final = 512
Found = tuple[object, dict[str, Any], dict[str, Any], str | None]

_encoded_unreserved = re.compile(
    "(?<!%)(?<!%[0-9A-Fa-f])"  # after a % that begins no escape, one would come into being
    "%(?:2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])"
)


def raw_path(environ: Mapping[str, Any]) -> str:
    """Return the path as sent, percent-encoded except for unreserved characters (RFC 3986, 6.2.2.2).

    Without `REQUEST_URI`, as in falcon.testing, `PATH_INFO` is encoded again.
    """
    target = environ.get("REQUEST_URI")
    path: str = target.partition("?")[0] if target else quote(environ["PATH_INFO"].encode("latin-1"))
    if "%" in path:
        path = _encoded_unreserved.sub(lambda match: chr(int(match[0][1:], 16)), path)
    return path


def parse_id(text: str) -> int | None:
    """Return the id from 1 to 2^63-1 that a path segment holds.

    None if the text is not plain ASCII digits, or if the number is out of range (CONTRACT 2).
    """
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    number = int(text)
    return number if 1 <= number <= MAX_ID else None


def _not_found(req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
    """Respond for every path below a group's prefix that no route matches. It is its own resource."""
    raise falcon.HTTPNotFound(description=f"There is nothing at {req.path}.")


class _DateTimeConverter(DateTimeConverter):
    """Falcon's, for a raw segment: most clients encode the colons of a time."""

    def convert(self, value: str) -> datetime | None:
        return super().convert(unquote(value))


class RawPathRouter(CompiledRouter):
    """Falcon's router on raw paths. It also sets a request's route group.

    One trailing slash is ignored. Fields match one raw segment each and are passed on decoded. A field that is not
    UTF-8, or holds NUL, matches nothing. A path below a group's prefix that no route matches is a 404 in that
    group's format. HEAD follows from GET.
    """

    def __init__(
        self, routes: Mapping[str, MountedRoute], prefixes: Mapping[str, MountedRoute], *, dev: bool = False
    ) -> None:
        """Take the routes by full URI template, and the groups by prefix. With `dev`, responders are checked."""
        super().__init__()
        self.options.converters["dt"] = _DateTimeConverter
        self._dev = dev
        self._routes = routes
        self._prefixes = prefixes
        # By the request's target: resource, methods, template, mounted.
        self._literals: dict[str | None, tuple[object, dict[str, Any], str, MountedRoute]] = {}

    def map_http_methods(self, resource: object, **kwargs: Any) -> dict[str, Any]:
        methods: dict[str, Any] = super().map_http_methods(resource, **kwargs)
        if self._dev:
            methods = {method: _check_responder(responder) for method, responder in methods.items()}
        if "GET" in methods:
            methods.setdefault("HEAD", methods["GET"])
        if "OPTIONS" not in methods:  # Falcon's own leaves OPTIONS out of Allow (RFC 9110, 10.2.1)
            methods["OPTIONS"] = create_default_options(sorted((*methods, "OPTIONS")))
        return methods

    def find(self, uri: str, req: Request | None = None) -> Found | None:  # type: ignore[override] # Falcon's stub says Request | None of its own kind
        """Find the route of a request by its raw path, and set the request's `mounted`.

        None for a path that no route group covers. The decoded path is used only without a request.
        """
        if req is None:
            return super().find(uri)
        environ = req.env
        literal = self._literals.get(environ.get("REQUEST_URI"))
        if literal is not None:
            resource, methods, template, mounted = literal
            params: dict[str, Any] = {}
        else:
            path = raw_path(environ)
            is_plain = "%" not in path and "//" not in path and path.isascii()
            if path[-1:] == "/" and len(path) > 1:
                path = path[:-1]
            found = CompiledRouter.find(self, path) if is_plain or path[:2] != "//" else None
            if found is None or not (is_plain or _decode(found[2])):
                group = find_group(self._prefixes, path)
                if group is None:
                    return None
                req.mounted = environ[MOUNTED] = group
                return _not_found, {req.method: _not_found}, {}, group.template
            resource, methods, params, template = found  # type: ignore[assignment] # only routes without one have none
            mounted = self._routes[template]
            if not params and template == path:  # only templates without fields, so the cache stays small
                self._literals[path] = resource, methods, template, mounted
        req.mounted = environ[MOUNTED] = mounted
        if req.method not in methods:
            # Falcon answers 400 to a method that HTTP doesn't register; nobody implements WEBSOCKET under WSGI,
            # so its responder is the 405 that names the methods of this resource.
            methods = {req.method: methods["WEBSOCKET"]}
        return resource, methods, params, template


def find_group(prefixes: Mapping[str, MountedRoute], path: str) -> MountedRoute | None:
    """Return the group whose prefix covers a raw path. None if there is none."""
    if len(path) > _LONG_PATH:  # of a refused target, it may have thousands of segments
        path = path[: max(map(len, prefixes), default=0) + 1]
    while path:
        mounted = prefixes.get(path)
        if mounted is not None:
            return mounted
        path = path.rpartition("/")[0].rstrip("/")  # the prefix / is for the root alone, and covers no //x
    return None


def _check_responder(responder: Callable[..., object]) -> Callable[..., None]:
    """Return a responder that fails if this one returns a value or sets an unknown attribute of the response.

    Falcon ignores both and would send an empty 200.
    """

    @functools.wraps(responder)
    def respond(req: falcon.Request, resp: falcon.Response, **params: Any) -> None:
        before = set(vars(resp))
        result = responder(req, resp, **params)
        for name in sorted(vars(resp).keys() - before):
            if not hasattr(falcon.Response, name):
                similar = difflib.get_close_matches(name, dir(falcon.Response), 1)
                raise AttributeError(
                    f"{responder.__qualname__} set resp.{name}, which Falcon ignores"
                    + (f": did you mean resp.{similar[0]}?" if similar else ": keep what is yours in resp.context")
                )
        if result is not None:
            raise TypeError(
                f"{responder.__qualname__} returned a {type(result).__name__}, which Falcon ignores:"
                " set resp.media (or resp.text, resp.data), and return nothing"
            )

    return respond


def _decode(params: dict[str, Any]) -> bool:
    """Percent-decode the fields in place. Return whether all of them are valid."""
    for name, raw in params.items():
        if raw == "":  # between two slashes
            return False
        if isinstance(raw, str) and ("%" in raw or not raw.isascii()):
            try:
                value = unquote_to_bytes(raw.encode("latin-1")).decode("utf-8")
            except UnicodeError:
                return False
            if "\0" in value:
                return False
            params[name] = value
    return True
