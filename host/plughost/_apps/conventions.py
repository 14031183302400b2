"""What operations declare of their future: the header fields that tell clients so (RFC 9745, RFC 8594)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import falcon

if TYPE_CHECKING:
    from plughost._api.declarations import Operation, Route, RouteGroup
    from plughost.http._request import Request


def compile_future(group: RouteGroup, route: Route) -> Callable[..., None] | None:
    """Return what says in a route's responses that its operations are to be used no more. None where they are."""
    by_method = {method: _fields(group, operation) for method, operation in route.operations.items()}
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])
    if not any(by_method.values()):
        return None

    def process_response(req: Request, resp: falcon.Response, *_: Any) -> None:
        for name, value in by_method.get(req.method, {}).items():
            resp.append_header(name, value)  # a response may have links of its own

    return process_response


def _fields(group: RouteGroup, operation: Operation) -> dict[str, str]:
    deprecated, sunset = operation.deprecated or group.deprecated, operation.sunset or group.sunset
    successor = operation.successor or group.successor
    fields = {}
    if deprecated is not None:
        fields["Deprecation"] = f"@{int(moment(deprecated).timestamp())}"
    if sunset is not None:
        fields["Sunset"] = falcon.dt_to_http(moment(sunset))
    if successor:
        fields["Link"] = f'<{successor}>; rel="successor-version"'
    return fields


def moment(day: date) -> datetime:
    """Return a time in UTC: of a date its beginning."""
    return day.astimezone(UTC) if isinstance(day, datetime) else datetime.combine(day, time(), UTC)
