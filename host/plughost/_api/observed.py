"""What observers receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from plughost._apps.mounted import MountedRoute


class Timings(NamedTuple):
    """How a request's time was spent, in seconds. The rest is middleware, and encoding the response.

    Attributes:
        queued: How long the complete request waited for a thread. Not part of `RequestRecord.seconds`.
        resource: How long the resource took. 0 if none was called.
        store: How much of that was spent in store operations, including their waits.
    """

    queued: float
    resource: float
    store: float


class RequestRecord(NamedTuple):
    """An answered request, as observers receive it.

    Attributes:
        arrived: When it arrived, by `time.perf_counter()`.
        seconds: How long it took until its response began.
        method: Its method, as sent.
        target: Its path and query, percent-encoded as sent. The first 2,000 characters.
        status: The status as it was set, such as `200 OK`. See `code`.
        mounted: Its route or group. None if there is none. See `plugin` and `route`.
        site: The site.
        protocol: `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
        request_id: The `X-Request-ID` of the response.
        timings: How its time was spent. None unless an observer on the host sets `Observer.timings`.
    """

    arrived: float
    seconds: float
    method: str
    target: str
    status: Any
    mounted: MountedRoute | None
    site: str
    protocol: str
    request_id: str
    timings: Timings | None = None

    @property
    def plugin(self) -> str:
        """Its plugin. Empty if there is none."""
        return self.mounted.plugin if self.mounted is not None else ""

    @property
    def route(self) -> str:
        """The full URI template of its route, `<prefix>/*` below a prefix without such a route, else empty."""
        return self.mounted.template if self.mounted is not None else ""

    @property
    def code(self) -> int:
        """The status code. 500 for an invalid status, since the engine then sends 500."""
        return code_of(self.status)


class RequestKind(NamedTuple):
    """The key by which requests are counted together.

    Attributes:
        plugin: Their plugin. Empty if there is none.
        route: The full URI template of their route, as in `RequestRecord`.
        method: Their method, as sent: clients can invent any.
        code: The status code.
    """

    plugin: str
    route: str
    method: str
    code: int


def code_of(status: Any) -> int:
    """Return the code of a Falcon status. 500 for an invalid one."""
    import falcon  # noqa: PLC0415 - not every command needs it

    try:
        code: int = falcon.http_status_to_code(status)
    except (TypeError, ValueError):
        return 500
    return code
