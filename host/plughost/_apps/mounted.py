"""A mounted route: what the request path needs of it, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plughost._apps.versions import Versions
    from plughost.http._errors import ErrorFormat
    from plughost.http._negotiation import Offers


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
