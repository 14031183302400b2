"""A mounted route: what the request path needs of it, and nothing else; its minor versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import falcon

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plughost.http._errors import ErrorFormat
    from plughost.http._negotiation import Offers


_version = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)


class Versions:
    """The minor versions that a route group speaks, chosen by `API-Version` (SPEC Versioning 2, CONTRACT 2).

    Attributes:
        spoken: The versions, oldest first.
        newest: The one that serves a request which asks for none.
    """

    def __init__(self, spoken: Sequence[str]) -> None:
        """Check and order the versions.

        Raises:
            ValueError: There is none, or one is not of the form `major.minor`.
        """
        if not spoken:
            raise ValueError("a route group with minor versions needs at least one")
        parsed = []
        for version in spoken:
            match = _version.fullmatch(version)
            if match is None:
                raise ValueError(f"{version!r} is not a minor version: write it as major.minor, such as '1.0'")
            parsed.append((int(match[1]), int(match[2])))
        parsed.sort()
        self.spoken: tuple[str, ...] = tuple(f"{major}.{minor}" for major, minor in parsed)
        self.newest: str = self.spoken[-1]
        self._chosen = {name: name for name in self.spoken} | {
            str(major): f"{major}.{minor}" for major, minor in parsed
        }

    def choose(self, asked: str | None) -> str:
        """Return the version that serves a request.

        Raises:
            falcon.HTTPBadRequest: The version is malformed, or not spoken here. The detail names those that are.
        """
        if asked is None:
            return self.newest
        try:
            return self._chosen[asked.strip()]
        except KeyError:
            raise falcon.HTTPBadRequest(
                title="Unsupported API Version",
                description=f"API-Version: this resource speaks {', '.join(self.spoken)}.",
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mounted:
    """A route, or the fallback of a group's prefix, on a site. Equal to itself only.

    Attributes:
        plugin: The plugin that it belongs to.
        template: The full URI template, or `<prefix>/*` for the paths below a prefix that no route matches.
        errors: The error format.
        versions: The minor versions. None where the group has none.
        common_fields: Minor version to the header fields that are the same in all its responses. Of None in those
            before a version was chosen.
        body_limit: Largest request body in bytes.
        produces: HTTP method to what its successful answers are sent as.
        process_resource: The plugin's own middleware before the resource, outermost first, and what is declared.
        process_response: The same after it, innermost first.
    """

    plugin: str
    template: str
    errors: ErrorFormat
    versions: Versions | None
    common_fields: Mapping[str | None, Mapping[str, str]]
    body_limit: int
    produces: Mapping[str, Offers]
    process_resource: tuple[Callable[..., Any], ...] = ()
    process_response: tuple[Callable[..., Any], ...] = ()
