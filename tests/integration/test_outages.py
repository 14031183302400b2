"""PostgreSQL goes away under load and returns: the host continues, and recovers by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from tests.integration.kit import ALL, HostProcess, host_process
from tests.integration.load import Load
from tests.stores.proxy import Proxy
from tests.waiting import wait_until

from plughost.testing import fresh_postgresql

if TYPE_CHECKING:
    import httpx

STORED = ("/messages", "/api/v3/products", "/products")
OUTAGES = 3 if ALL else 1


@pytest.fixture
def proxy() -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of the test's own database, and the URL through it."""
    with fresh_postgresql() as url:
        server = urlsplit(url)
        assert server.hostname is not None
        proxy = Proxy(server.hostname, server.port or 5432)
        netloc = f"{server.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}"
        yield proxy, server._replace(netloc=netloc).geturl()
        proxy.close()


@pytest.fixture
def host(proxy: tuple[Proxy, str], tmp_path: Path) -> Iterator[HostProcess]:
    """A host with every plugin, whose stores are all reached through the proxy."""
    with host_process(tmp_path, {"stores": {"url": proxy[1]}}) as running:
        yield running
        assert running.stop() == 0
        running.no_tracebacks()


def stored(path: str, acknowledged: list[str]) -> Callable[[httpx.Client], str]:
    """Return an exchange that reads and writes records in PostgreSQL."""
    numbers = count()

    def exchange(client: httpx.Client) -> str:
        name = f"{path} {next(numbers)}"
        body = {"content": name} if path == "/messages" else {"sku": name, "name": "Tea", "price": 1, "stock": 1}
        listed, created = client.get(f"{path}?size=1"), client.post(path, json=body)
        for answer, status in ((listed, 200), (created, 201)):
            assert answer.status_code in {status, 503}, f"{answer.status_code} {answer.text}"
            assert "127.0.0.1" not in answer.text
        if created.status_code == 201:
            acknowledged.append(name)
        unknown = created.status_code == 503 and "may have been done" in created.text
        assert not (unknown and "Retry-After" in created.headers), "a possibly done request must not be repeated"
        refused = [each for each in (listed, created) if each.status_code == 503 and not (unknown and each is created)]
        assert all(each.headers.get("Retry-After", "").isdigit() for each in refused)
        return "unknown" if unknown else "unavailable" if refused else "stored"

    return exchange


def in_memory(client: httpx.Client) -> str:
    """Use catalog-v2, which has no store."""
    assert client.get("/api/v2/products").status_code == 200
    assert client.post("/api/v2/products", json={}).status_code == 400
    assert client.get("/q/health/live").status_code == 200
    return "in memory"


def test_during_an_outage_the_answer_is_503_until_the_server_is_back(
    host: HostProcess, proxy: tuple[Proxy, str]
) -> None:
    """A write that may have been done has no Retry-After; plugins without a store are not affected."""
    acknowledged: list[str] = []
    with Load(host, pause=0.01) as load:
        for path in STORED:
            load.add(path, stored(path, acknowledged))
        load.add("in memory", in_memory)

        def more(word: str, number: int = 40) -> None:
            least = load.tally[word] + number
            wait_until(lambda: load.tally[word] > least or load.failures)

        for _ in range(OUTAGES):
            more("stored")
            proxy[0].cut_after = b"INSERT"  # written and not confirmed
            more("unknown", 5)
            proxy[0].cut()
            proxy[0].cut_after = None
            more("unavailable")
            more("in memory")
            proxy[0].mend()
            more("stored")
        with host.client() as client:
            wait_until(lambda: client.get("/q/health/ready").status_code == 200)
    assert load.failures == []
    with host.client() as client:
        kept = {each["content"] for each in client.get("/messages").json()}
        kept |= {each["sku"] for each in client.get("/api/v3/products").json()}
    assert set(acknowledged) <= kept
