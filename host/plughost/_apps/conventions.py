"""What operations declare of their future: the header fields that tell clients so (RFC 9745, RFC 8594)."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING

import falcon

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost._api.declarations import Operation, Route, RouteGroup
    from plughost.http._request import Request


class Future:
    """Says in every response of a route that its operations are to be used no more. Other routes don't have it."""

    def __init__(self, by_method: Mapping[str, Mapping[str, str]]) -> None:
        """Take the header fields of each method's responses."""
        self._by_method = by_method

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Add them. A response may have links of its own."""
        for name, value in self._by_method.get(req.method, {}).items():
            resp.append_header(name, value)


def compile_future(group: RouteGroup, route: Route) -> Future | None:
    """Return the middleware that tells the future of a route. None where it has the usual one."""
    by_method = {method: _fields(group, operation) for method, operation in route.operations.items()}
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])
    return Future(by_method) if any(by_method.values()) else None


def _fields(group: RouteGroup, operation: Operation) -> dict[str, str]:
    deprecated, sunset, successor = future_of(group, operation)
    fields = {}
    if deprecated is not None:
        fields["Deprecation"] = f"@{int(moment(deprecated).timestamp())}"
    if sunset is not None:
        fields["Sunset"] = falcon.dt_to_http(moment(sunset))
    if successor:
        fields["Link"] = f'<{successor}>; rel="successor-version"'
    return fields


def future_of(group: RouteGroup, operation: Operation) -> tuple[date | None, date | None, str]:
    """Return since when an operation is deprecated, when it will be gone, and what replaces it."""
    return (
        operation.deprecated or group.deprecated,
        operation.sunset or group.sunset,
        operation.successor or group.successor,
    )


def moment(day: date) -> datetime:
    """Return a time in UTC: of a date its beginning."""
    return day.astimezone(UTC) if isinstance(day, datetime) else datetime.combine(day, time(), UTC)
