"""Server-sent events: streams that stay open, without a thread each (WHATWG HTML, 9.2)."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from plughost._waiting import Pause
from plughost.http._json.codec import encode

if TYPE_CHECKING:
    import falcon

MEDIA_TYPE: Final = "text/event-stream"

_line_end: Final = re.compile(r"\r\n|\r|\n")
_unfit: Final = re.compile(r"[\r\n\0]")
_HEARTBEAT: Final = b":\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSentEvent:
    """An event that a page's `EventSource` gets.

    Attributes:
        data: A string as it is, anything else as JSON.
        name: What the page listens for. Empty for `message`.
        id: What a client that comes back sends as `Last-Event-ID`. None for none.
    """

    data: Any
    name: str = ""
    id: str | int | None = None

    def render(self) -> bytes:
        """Return its lines.

        Raises:
            ValueError: The name or the id has a line break or NUL, or the data can't be encoded.
            TypeError: The data has no place in JSON.
        """
        lines = []
        for field, value in (("event", self.name), ("id", "" if self.id is None else str(self.id))):
            if _unfit.search(value):
                raise ValueError(f"the {field} of an event is one line without NUL: {value!r}")
            if value:
                lines.append(f"{field}: {value}\n")
        text = self.data if isinstance(self.data, str) else encode(self.data).decode()
        lines += [f"data: {line}\n" for line in _line_end.split(text)]
        return "".join((*lines, "\n")).encode()


class EventChannel:
    """Where events are published, in any thread, for all who read the channel at that moment.

    A reader holds no thread while there is nothing to send. One that takes its events too slowly is let go when more
    than `buffer` of them wait for it: its client comes back by itself, and asks for what it missed. At the drain all
    streams end, with what was published before.

    Args:
        heartbeat: Seconds without an event after which a comment is sent, so that proxies keep the connection and a
            client that has gone is noticed.
        buffer: How many events may wait for one reader.
        retry: Seconds after which a client comes back when its stream has ended.
    """

    def __init__(self, *, heartbeat: float = 15.0, buffer: int = 100, retry: float = 2.0) -> None:
        self.heartbeat = heartbeat
        self.buffer = buffer
        self.retry = retry
        self._lock = threading.Lock()
        self._readers: set[_Reader] = set()
        self._closed = False

    @property
    def readers(self) -> int:
        """How many read it at the moment."""
        return len(self._readers)

    def publish(self, event: ServerSentEvent) -> None:
        """Send an event to everybody who reads now; return at once.

        Raises:
            ValueError: As `ServerSentEvent.render`.
            TypeError: As `ServerSentEvent.render`.
        """
        part = event.render()
        with self._lock:
            for reader in self._readers:
                reader.push(event.id, part)

    def close(self) -> None:
        """End all streams, once what was published is sent, and those at once that begin later."""
        with self._lock:
            self._closed = True
            for reader in self._readers:
                reader.end()

    def open(self) -> _Reader:
        """Begin to read."""
        reader = _Reader(self)
        with self._lock:
            self._readers.add(reader)
            if self._closed:
                reader.end()
        return reader

    def leave(self, reader: _Reader) -> None:
        """End to read."""
        with self._lock:
            self._readers.discard(reader)


class _Reader:
    """The body of one stream."""

    def __init__(self, channel: EventChannel) -> None:
        self._channel = channel
        self._waiting: deque[tuple[str | int | None, bytes]] = deque()
        self._missed: list[bytes] = []
        self._known: set[str] = set()
        self._ended = self._fell_behind = False
        self._pause: Pause | None = None

    def catch_up(self, missed: Iterable[ServerSentEvent]) -> None:
        """Send some events first, and none of them once more."""
        for event in missed:
            self._missed.append(event.render())
            if event.id is not None:
                self._known.add(str(event.id))

    def push(self, key: str | int | None, part: bytes) -> None:
        """Send an event as soon as the client takes it."""
        if len(self._waiting) < self._channel.buffer:
            self._waiting.append((key, part))
        else:
            self._fell_behind = True
        self._wake()

    def end(self) -> None:
        """End once all is sent."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        pause = self._pause
        if pause is not None:
            pause.ready()

    def __iter__(self) -> Iterator[bytes]:
        """Yield what there is to send."""
        channel = self._channel
        yield b"".join((b"retry: %d\n\n" % (channel.retry * 1000), *self._missed))
        self._missed = []
        is_last = False
        while not self._fell_behind:
            part = b"".join(self._take())
            if part:
                yield part
                continue
            if is_last or (self._ended and not self._waiting):
                return
            pause = self._pause = Pause(channel.heartbeat)
            if self._waiting or self._ended:
                continue  # they came before there was a pause to end
            yield pause
            self._pause = None
            is_last = pause.ended
            if not (is_last or self._waiting or self._ended):
                yield _HEARTBEAT

    def _take(self) -> Iterator[bytes]:
        while self._waiting:
            key, part = self._waiting.popleft()
            if key is None or str(key) not in self._known:
                yield part

    def close(self) -> None:
        """Read no more."""
        self._channel.leave(self)


def send_events(
    resp: falcon.Response,
    channel: EventChannel,
    *,
    missed: Callable[[], Iterable[ServerSentEvent]] = tuple,
) -> None:
    """Answer with the events of a channel, from now on until the client leaves or the drain begins.

    Call this last in a responder. The stream takes no thread while it waits.

    Args:
        resp: The response.
        channel: Where the events are published.
        missed: Returns the events that the client has missed, in their order, such as those in a store after the
            request's `Last-Event-ID`. It is called once, here, when the client reads already: none is lost between,
            and one with an id that is published at that moment, too, is sent once.
    """
    reader = channel.open()
    try:
        reader.catch_up(missed())
    except BaseException:
        reader.close()
        raise
    resp.content_type = MEDIA_TYPE
    if resp.get_header("Cache-Control") is None:
        resp.set_header("Cache-Control", "no-cache, no-transform")  # nor compressed: that takes 256 KiB a stream
    resp.set_header("X-Accel-Buffering", "no")  # nginx holds a stream back until its buffer is full, otherwise
    resp.stream = reader
