"""A thousand event streams hold no thread each, survive reloads of other plugins, and end when the drain begins."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.host.plugins import Speaker, group_of
from tests.waiting import wait_until

from plughost import hookimpl
from plughost.http import EventChannel, ServerSentEvent, send_events
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

STREAMS = 1000
ON_A_CONNECTION = 100
EVENT = b"data: published\n\n"


class News:
    """A plugin with an event channel, which does nothing at the drain."""

    def __init__(self) -> None:
        """Open it."""
        self.channel = EventChannel()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send the channel's events."""
        send_events(resp, self.channel)

    @hookimpl
    def register_routes(self, context: Any) -> list[Any]:
        """Mount it."""
        return [group_of(self, "/news")]


class Reader:
    """A client that reads a stream to its end."""

    def __init__(self) -> None:
        """Start with nothing received."""
        self.received = b""
        self.is_whole = False

    async def over_http1(self, port: int) -> None:
        """Read over its own connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /news HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not self.is_whole and (part := await reader.read(4096)):
            self.received += part
            self.is_whole = self.received.endswith(b"\r\n0\r\n\r\n")
        writer.close()

    async def over_http2(self, client: httpx.AsyncClient) -> None:
        """Read over a shared connection."""
        async with client.stream("GET", "/news") as answer:
            async for part in answer.aiter_raw():
                self.received += part
        self.is_whole = True


async def begin(
    readers: list[Reader], host: RunningHost, scheme: str, stack: AsyncExitStack
) -> list[asyncio.Task[None]]:
    """Start all readers, and return their tasks."""
    if scheme == "http":
        return [asyncio.create_task(each.over_http1(host.port())) for each in readers]
    assert host.host.tls is not None
    verify = ssl.create_default_context(cafile=str(host.host.tls.certificate))
    tasks = []
    for number in range(0, len(readers), ON_A_CONNECTION):
        client = httpx.AsyncClient(
            base_url=host.url(scheme="https"), verify=verify, http1=False, http2=True, timeout=120, trust_env=False
        )
        await stack.enter_async_context(client)
        tasks += [asyncio.create_task(each.over_http2(client)) for each in readers[number : number + ON_A_CONNECTION]]
    return tasks


async def soon(condition: Any) -> None:
    """Wait until a condition holds, while the readers read."""
    await asyncio.to_thread(wait_until, condition, 120.0)


@pytest.mark.parametrize(("scheme", "engine"), [("http", "waitress"), ("http", "granian"), ("https", "granian")])
def test_a_thousand_streams_survive_a_reload_and_end_at_the_drain(scheme: str, engine: str) -> None:
    """All use only a few threads, receive an event published after a reload, and end complete at the stop."""
    news, readers = News(), [Reader() for _ in range(STREAMS)]
    installed = [plugin_distribution("news", news), plugin_distribution("other", Speaker("other", "/other"))]

    async def read(host: RunningHost) -> bool:
        async with AsyncExitStack() as stack:
            threads = threading.active_count()
            tasks = await begin(readers, host, scheme, stack)
            await soon(lambda: news.channel.readers == STREAMS)
            assert threading.active_count() < threads + 20
            installed[1] = plugin_distribution("other", Speaker("another", "/other"), version="2.0")
            report = await asyncio.to_thread(host.host.reload)
            assert (report.changed, report.cut_off) == (("other",), ())
            news.channel.publish(ServerSentEvent(data="published"))
            await soon(lambda: all(EVENT in each.received for each in readers))
            answered = await asyncio.to_thread(host.host.stop)
            await asyncio.gather(*tasks)
            return answered

    settings = {"grace_time": 300.0, "sites": {"main": {"http_engine": engine}}}
    with running_host(distributions=installed, settings=settings) as host:
        assert asyncio.run(read(host))
    assert all(each.is_whole and each.received.count(EVENT) == 1 for each in readers)
    assert news.channel.readers == 0


@pytest.mark.parametrize(("scheme", "engine"), [("http", "waitress"), ("http", "granian"), ("https", "granian")])
@pytest.mark.parametrize(("word", "alone"), [("changed", False), ("removed", False), ("removed", True)])
def test_streams_of_a_plugin_that_leaves_end_with_it(word: str, alone: bool, scheme: str, engine: str) -> None:
    """Without its help, its streams end complete, with all events published before, even on a site that closes."""
    news, readers = News(), [Reader() for _ in range(10)]
    others = [] if alone else [plugin_distribution("other", Speaker("other", "/other"))]
    installed = [plugin_distribution("news", news), *others]

    async def read(host: RunningHost) -> None:
        async with AsyncExitStack() as stack:
            tasks = await begin(readers, host, scheme, stack)
            await soon(lambda: news.channel.readers == 10)
            news.channel.publish(ServerSentEvent(data="published"))
            installed[:1] = [plugin_distribution("news", News(), version="2.0")] if word == "changed" else []
            report = await asyncio.to_thread(host.host.reload)
            assert (getattr(report, word), report.cut_off) == (("news",), ())
            await asyncio.gather(*tasks)

    settings = {"grace_time": 300.0, "sites": {"main": {"http_engine": engine}}}
    with running_host(distributions=installed, settings=settings) as host:
        asyncio.run(read(host))
    assert all(each.is_whole and EVENT in each.received for each in readers)


def test_streams_end_when_their_certificate_is_replaced() -> None:
    """They would hold the connections under the old certificate; their clients connect again."""
    news, readers = News(), [Reader() for _ in range(10)]

    async def read(host: RunningHost) -> None:
        async with AsyncExitStack() as stack:
            tasks = await begin(readers, host, "https", stack)
            await soon(lambda: news.channel.readers == 10)
            shutil.rmtree(host.host.settings.data_dir / "tls")
            reloading = asyncio.create_task(asyncio.to_thread(host.host.reload))
            await asyncio.gather(*tasks)
            assert (await reloading).certificate

    settings = {"grace_time": 300.0, "tls": {"self_signed": True}}
    with running_host(distributions=[plugin_distribution("news", news)], settings=settings) as host:
        asyncio.run(read(host))
    assert all(each.is_whole for each in readers)
