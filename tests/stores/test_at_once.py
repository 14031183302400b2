"""Requests of a plugin with a store are answered several at once, on every engine, and others beside them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.plugins import Plugin, Speaker, until

from plughost import Operation, PluginContext, Route, RouteGroup, Store
from plughost._apps.edge import SAFE
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

    from plughost.stores import OpenStore, Session

AT_ONCE = 10
NOTES = "CREATE TABLE notes (id {identity}, text TEXT NOT NULL);"


class Notes:
    """A resource that reads together with others, and writes."""

    def __init__(self, store: OpenStore[Session]) -> None:
        """Keep notes in a store."""
        self._store = store
        self.together = threading.Barrier(AT_ONCE + 1, timeout=30)

    def on_put(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Count the notes, once as many others do."""

        def count(session: Session) -> int:
            found: int = session.rows("SELECT count(*) FROM notes")[0][0]
            self.together.wait()
            return found

        resp.media = self._store.read(count)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Take a note."""
        resp.media = self._store.single(lambda session: session.insert("INSERT INTO notes (text) VALUES (?)", "note"))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return where stores are."""
    return {"url": request.getfixturevalue("postgresql")} if request.param == "postgresql" else {}


@pytest.fixture(params=["granian", "waitress"])
def host(
    request: pytest.FixtureRequest, declare: Callable[..., Store], url: dict[str, str]
) -> Iterator[tuple[RunningHost, list[Notes]]]:
    """Return a host with a plugin that keeps notes and one that keeps nothing, and the resource of the former."""
    declared = declare(NOTES, name="notes", entities=None, tables=("notes",))
    made: list[Notes] = []

    def routes(context: PluginContext[Any]) -> list[RouteGroup]:
        made.append(Notes(context.store(declared)))
        operations = {"PUT": Operation(summary="Count"), "POST": Operation(summary="Note")}
        return [RouteGroup(prefix="/notes", routes=(Route("", made[-1], operations),))]

    notes = Plugin(register_stores=lambda context: [declared], register_routes=routes)
    installed = [plugin_distribution("notes", notes), plugin_distribution("speaker", Speaker("hi"))]
    requests = {"plugin_queue": 0} if request.node.originalname.startswith("test_what_has_no_room") else {}
    settings = {"sites": {"main": {"http_engine": request.param}}, "stores": url, "requests": requests}
    with running_host(distributions=installed, settings=settings) as running:
        yield running, made


def test_ten_are_answered_at_once(host: tuple[RunningHost, list[Notes]]) -> None:
    """Ten requests are in their store together, and one of another plugin is answered meanwhile."""
    running, made = host
    with ThreadPoolExecutor(AT_ONCE) as pool, running.client() as client:
        answers = [pool.submit(client.put, "/notes") for _ in range(AT_ONCE)]
        assert client.get("/say").status_code == 200
        made[-1].together.wait()
        assert [each.result().status_code for each in answers] == [200] * AT_ONCE


def test_reads_wait_for_nothing_where_the_store_is_a_file(
    host: tuple[RunningHost, list[Notes]], url: dict[str, str]
) -> None:
    """Methods that only read are answered in turn on SQLite; on PostgreSQL none is. Who has no store is not in it."""
    running, _ = host
    assert running.host.generation is not None
    assert running.host.generation.nonblocking_methods() == {"notes": frozenset() if url else SAFE}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_has_no_room_is_refused_and_harms_nobody(host: tuple[RunningHost, list[Notes]]) -> None:
    """Where no request may wait, the next is 503, others are answered, and so is the plugin after that."""
    running, made = host
    with ThreadPoolExecutor(AT_ONCE) as pool, running.client() as client:
        answers = [pool.submit(client.put, "/notes") for _ in range(AT_ONCE)]
        until(lambda: made[-1].together.n_waiting == AT_ONCE)
        refused = client.put("/notes")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert client.get("/say").status_code == 200
        made[-1].together.wait()
        assert [each.result().status_code for each in answers] == [200] * AT_ONCE
        assert client.post("/notes").status_code == 200


def test_writes_share_commits(host: tuple[RunningHost, list[Notes]], url: dict[str, str]) -> None:
    """Fewer commits than notes come to SQLite's log, and each that was answered is there, under an id of its own."""
    if url:
        pytest.skip("PostgreSQL itself lets commits share a write")
    running, made = host
    store = made[-1]._store
    assert store.database.config.path is not None
    with running.client() as client, ThreadPoolExecutor(AT_ONCE) as pool:
        ids = [client.post("/notes").json()]
        before = _commits(store.database.config.path)
        ids += pool.map(lambda _: client.post("/notes").json(), range(800))
    assert sorted(ids) == list(range(1, 802))
    assert _commits(store.database.config.path) - before < 800


def _commits(file: Path) -> int:
    """Return how many commits the index of the write-ahead log counts (sqlite.org/walformat.html, section 2.1)."""
    # In a process of its own: to close a file here drops the locks that SQLite holds on it.
    script = "import sys; print(int.from_bytes(open(sys.argv[1], 'rb').read(12)[8:], sys.byteorder))"
    command = [sys.executable, "-c", script, f"{file}-shm"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
