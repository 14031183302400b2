"""What observers get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from plughost._apps.mounted import Mounted


class Timings(NamedTuple):
    """Where the time of a request went, in seconds. The rest is middleware, and what makes the response's bytes.

    Attributes:
        queued: How long the request waited for a thread, once all of it was there. Not part of `RequestRecord.seconds`.
        resource: How long the resource took. 0 where none was called.
        store: How much of that operations of stores took, their waits included.
    """

    queued: float
    resource: float
    store: float


class RequestRecord(NamedTuple):
    """A request that was answered, as observers get it.

    Attributes:
        arrived: When it arrived, of `time.perf_counter()`.
        seconds: How long it took until its response began.
        method: Its method, as it was sent.
        target: Its path and query, percent-encoded as they were sent. The first 2,000 characters.
        status: The status as it was set, such as `200 OK`. See `code`.
        mounted: The route or group that it was for. None where there is none. See `plugin` and `route`.
        site: The site.
        protocol: `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
        request_id: What `X-Request-ID` of the response carries.
        timings: Where its time went. None unless an observer on the host asks, by `Observer.timings`.
    """

    arrived: float
    seconds: float
    method: str
    target: str
    status: Any
    mounted: Mounted | None
    site: str
    protocol: str
    request_id: str
    timings: Timings | None = None

    @property
    def plugin(self) -> str:
        """The plugin that it was for. Empty where there is none."""
        return self.mounted.plugin if self.mounted is not None else ""

    @property
    def route(self) -> str:
        """The full URI template of its route, `<prefix>/*` below a prefix that has no such route, else empty."""
        return self.mounted.template if self.mounted is not None else ""

    @property
    def code(self) -> int:
        """The status code: 500 for a status that can't be sent, as the engine then answers."""
        return code_of(self.status)


class RequestKind(NamedTuple):
    """What requests have in common that are counted together.

    Attributes:
        plugin: The plugin that they were for. Empty where there is none.
        route: The full URI template of its route, as of `RequestRecord`.
        method: Their method, as it was sent: clients may make up any.
        code: The status code.
    """

    plugin: str
    route: str
    method: str
    code: int


def code_of(status: Any) -> int:
    """Return the code of a Falcon status. 500 for one that can't be sent."""
    import falcon  # noqa: PLC0415 - which not every command needs

    try:
        code: int = falcon.http_status_to_code(status)
    except (TypeError, ValueError):
        return 500
    return code
