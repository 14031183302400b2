"""Server-sent events: open streams that hold no threads (WHATWG HTML, 9.2)."""

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
_forbidden: Final = re.compile(r"[\r\n\0]")
_HEARTBEAT: Final = b":\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSentEvent:
    """An event for a page's `EventSource`.

    Attributes:
        data: A string is sent unchanged, anything else as JSON.
        name: The event type that the page listens for. Empty for `message`.
        id: What a reconnecting client sends as `Last-Event-ID`. None for no id.
    """

    data: Any
    name: str = ""
    id: str | int | None = None

    def render(self) -> bytes:
        """Return the event as bytes to send.

        Raises:
            ValueError: The name or the id has a line break or NUL, or the data can't be encoded.
            TypeError: JSON has no type for the data.
        """
        lines = []
        for field, value in (("event", self.name), ("id", "" if self.id is None else str(self.id))):
            if _forbidden.search(value):
                raise ValueError(f"the {field} of an event is one line without NUL: {value!r}")
            if value:
                lines.append(f"{field}: {value}\n")
        text = self.data if isinstance(self.data, str) else encode(self.data).decode()
        lines += [f"data: {line}\n" for line in _line_end.split(text)]
        return "".join((*lines, "\n")).encode()


class EventChannel:
    """Publishes events, from any thread, to all current readers.

    A reader holds no thread while there is nothing to send. If more than `buffer` events wait for a slow reader, its
    stream ends: the client reconnects by itself and asks for what it missed. At the drain, all streams end after the
    events published so far.

    Args:
        heartbeat: Seconds without an event before a comment is sent: proxies then keep the connection, and the host
            notices clients that left.
        buffer: How many events may wait for one reader.
        retry: Seconds after which a client reconnects when its stream has ended.
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
        """The number of current readers."""
        return len(self._readers)

    def publish(self, event: ServerSentEvent) -> None:
        """Send an event to all current readers; return at once.

        Raises:
            ValueError: As `ServerSentEvent.render`.
            TypeError: As `ServerSentEvent.render`.
        """
        part = event.render()
        with self._lock:
            for reader in self._readers:
                reader.push(event.id, part)

    def close(self) -> None:
        """End all streams after the events published so far. Streams that begin later end at once."""
        with self._lock:
            self._closed = True
            for reader in self._readers:
                reader.end()

    def open(self) -> _Reader:
        """Add a reader."""
        reader = _Reader(self)
        with self._lock:
            self._readers.add(reader)
            if self._closed:
                reader.end()
        return reader

    def leave(self, reader: _Reader) -> None:
        """Remove a reader."""
        with self._lock:
            self._readers.discard(reader)


class _Reader:
    def __init__(self, channel: EventChannel) -> None:
        self._channel = channel
        self._queue: deque[tuple[str | int | None, bytes]] = deque()
        self._missed: list[bytes] = []
        self._missed_ids: set[str] = set()
        self._ended = self._fell_behind = False
        self._pause: Pause | None = None

    def catch_up(self, missed: Iterable[ServerSentEvent]) -> None:
        """Send missed events first, and each of them only once."""
        for event in missed:
            self._missed.append(event.render())
            if event.id is not None:
                self._missed_ids.add(str(event.id))

    def push(self, event_id: str | int | None, part: bytes) -> None:
        if len(self._queue) < self._channel.buffer:
            self._queue.append((event_id, part))
        else:
            self._fell_behind = True
        self._wake()

    def end(self) -> None:
        """End the stream after the queued events."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        pause = self._pause
        if pause is not None:
            pause.ready()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the events, and a pause whenever there are none."""
        channel = self._channel
        yield b"".join((b"retry: %d\n\n" % (channel.retry * 1000), *self._missed))
        self._missed = []
        is_last = False
        while not self._fell_behind:
            part = b"".join(self._take_new())
            if part:
                yield part
                continue
            if is_last or (self._ended and not self._queue):
                return
            pause = self._pause = Pause(channel.heartbeat)
            if self._queue or self._ended:
                continue  # they came before the pause was there to be ended
            yield pause
            self._pause = None
            is_last = pause.ended
            if not (is_last or self._queue or self._ended):
                yield _HEARTBEAT

    def _take_new(self) -> Iterator[bytes]:
        while self._queue:
            event_id, part = self._queue.popleft()
            if event_id is None or str(event_id) not in self._missed_ids:
                yield part

    def close(self) -> None:
        self._channel.leave(self)


def send_events(
    resp: falcon.Response, channel: EventChannel, *, missed: Callable[[], Iterable[ServerSentEvent]] = tuple
) -> None:
    """Respond with the events of a channel, from now on until the client leaves or the drain begins.

    Call this last in a responder. The stream holds no thread while it waits.

    Args:
        resp: The response.
        channel: Where the events are published.
        missed: Returns the events that the client missed, in order, such as those in a store after the request's
            `Last-Event-ID`. It is called once, after the client became a reader: no event in between is lost, and one
            with an id that is published meanwhile is sent only once.
    """
    reader = channel.open()
    try:
        reader.catch_up(missed())
    except BaseException:
        reader.close()
        raise
    resp.content_type = MEDIA_TYPE
    if resp.get_header("Cache-Control") is None:
        resp.set_header("Cache-Control", "no-cache, no-transform")  # compression would take 256 KiB a stream
    resp.set_header("X-Accel-Buffering", "no")  # otherwise nginx holds a stream back until its buffer is full
    resp.stream = reader
