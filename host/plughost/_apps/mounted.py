"""A mounted route, as far as the request path needs it, and its minor versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import falcon

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plughost.http._errors import ErrorFormat
    from plughost.http._response import Offers

_version: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII).fullmatch


class Versions:
    """The minor versions that a route group supports, chosen by `API-Version` (SPEC Versioning 2, CONTRACT 2)."""

    def __init__(self, supported: Sequence[str]) -> None:
        """Order the versions, at least one. Raise `ValueError` if one isn't of the form `major.minor`."""
        for version in supported:
            if not _version(version):
                raise ValueError(f"{version!r} is not a minor version: write it as major.minor, such as '1.0'")
        # Oldest first. The newest one serves requests without `API-Version`.
        self.supported: tuple[str, ...] = tuple(sorted(supported, key=lambda each: [*map(int, each.split("."))]))
        self._by_name = {name: name for name in self.supported}
        self._by_name |= {name.partition(".")[0]: name for name in self.supported}

    def choose(self, requested: str | None) -> str:
        """Return the version that serves a request. Refuse one that is malformed or not supported."""
        if requested is None:
            return self.supported[-1]
        try:
            return self._by_name[requested.strip()]
        except KeyError:
            raise falcon.HTTPBadRequest(
                title="Unsupported API Version",
                description=f"API-Version: this resource supports {', '.join(self.supported)}.",
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedOperation:
    """An operation of a mounted route.

    Attributes:
        process_resource: The plugin's own middleware, outermost first, then the checks of what it declares.
        process_response: What adds the headers that it declares, then the plugin's own middleware, innermost first.
    """

    body_limit: int
    produces: Offers = ()
    process_resource: tuple[Callable[..., Any], ...]
    process_response: tuple[Callable[..., Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MountedRoute:
    """A route on a site, or the fallback for paths below a group's prefix. It equals only itself.

    Attributes:
        template: The full URI template, or `<prefix>/*` for the paths below a prefix that no route matches.
        common_fields: Maps a minor version to the header fields of all its responses. The key None is for responses
            before a version was chosen.
        operations: Those of HTTP methods; `undeclared` stands for all other methods.
    """

    plugin: str
    template: str
    errors: ErrorFormat
    versions: Versions | None
    common_fields: Mapping[str | None, Mapping[str, str]]
    operations: Mapping[str, MountedOperation]
    undeclared: MountedOperation
