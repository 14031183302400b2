"""Requests of a plugin with a store run concurrently on every engine, also with those of other plugins."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.plugins import Plugin, Speaker
from tests.waiting import wait_until

from plughost import Operation, PluginContext, Route, RouteGroup, Store
from plughost._apps.edge import SAFE_METHODS
from plughost._logging import silent_logger
from plughost._runtime.host import Host
from plughost._settings.sources import read_settings
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

    from plughost.stores import OpenStore, Session

AT_ONCE = 10
NOTES = "CREATE TABLE notes (id {identity}, text TEXT NOT NULL);"


class Notes:
    """A resource with concurrent reads, and writes."""

    def __init__(self, store: OpenStore[Session]) -> None:
        """Store the store."""
        self._store = store
        self.together = threading.Barrier(AT_ONCE + 1, timeout=30)

    def on_put(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Count the notes, once a given number of requests are there."""

        def count(session: Session) -> int:
            found: int = session.rows("SELECT count(*) FROM notes")[0][0]
            self.together.wait()
            return found

        resp.media = self._store.read(count)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Store a note."""
        resp.media = self._store.single(lambda session: session.insert("INSERT INTO notes (text) VALUES (?)", "note"))


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the place of the stores."""
    return {"url": request.getfixturevalue("postgresql")} if request.param == "postgresql" else {}


@pytest.fixture(params=["granian", "waitress"])
def host(
    request: pytest.FixtureRequest, declare: Callable[..., Store], url: dict[str, str]
) -> Iterator[tuple[RunningHost, list[Notes]]]:
    """Return a host with a plugin that stores notes and one without a store, and the resource of the former."""
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


def test_ten_requests_run_concurrently(host: tuple[RunningHost, list[Notes]]) -> None:
    """Ten requests are in their store together, and another plugin answers meanwhile."""
    running, made = host
    with ThreadPoolExecutor(AT_ONCE) as pool, running.client() as client:
        answers = [pool.submit(client.put, "/notes") for _ in range(AT_ONCE)]
        assert client.get("/say").status_code == 200
        made[-1].together.wait()
        assert [each.result().status_code for each in answers] == [200] * AT_ONCE


def test_only_reads_of_a_file_run_in_turn(host: tuple[RunningHost, list[Notes]], url: dict[str, str]) -> None:
    """On SQLite, methods that only read run in turn; on PostgreSQL none do, and neither do plugins without a store."""
    running, _ = host
    assert running.host.generation is not None
    assert running.host.generation.nonblocking_methods() == {"notes": frozenset() if url else SAFE_METHODS}


def test_reads_run_in_turn_only_if_all_stores_of_the_plugin_are_files(tmp_path: Path) -> None:
    """Any of its requests may wait for the one on a server."""
    for dialect in ("sqlite", "postgresql"):
        (tmp_path / dialect).mkdir()
        (tmp_path / dialect / "0001_begin.sql").write_text("SELECT 1;")
    file = tmp_path / "plughost.toml"
    file.write_text('[stores.urls]\nserved = "postgresql://127.0.0.1:1/none"\n')
    stores = [Store(name=name, migrations=tmp_path, tables=()) for name in ("kept", "served")]
    installed = [plugin_distribution("both", Plugin(register_stores=lambda context: stores))]
    host = Host(read_settings(file, environment={}), logger=silent_logger(), distributions=lambda: installed)
    assert host.dry_run().nonblocking_methods() == {"both": frozenset()}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_request_beyond_the_queue_is_refused_alone(host: tuple[RunningHost, list[Notes]]) -> None:
    """With no room to wait, the next request is 503; others are answered, and later ones of the plugin too."""
    running, made = host
    with ThreadPoolExecutor(AT_ONCE) as pool, running.client() as client:
        answers = [pool.submit(client.put, "/notes") for _ in range(AT_ONCE)]
        wait_until(lambda: made[-1].together.n_waiting == AT_ONCE)
        refused = client.put("/notes")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert client.get("/say").status_code == 200
        made[-1].together.wait()
        assert [each.result().status_code for each in answers] == [200] * AT_ONCE
        assert client.post("/notes").status_code == 200


def test_writes_share_commits(host: tuple[RunningHost, list[Notes]], url: dict[str, str]) -> None:
    """SQLite's log has fewer commits than notes, and each acknowledged note is there under its own id."""
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
    """Return the number of commits in the write-ahead log's index (sqlite.org/walformat.html, section 2.1)."""
    # In a separate process: closing the file here would drop SQLite's locks on it.
    script = "import sys; print(int.from_bytes(open(sys.argv[1], 'rb').read(12)[8:], sys.byteorder))"
    command = [sys.executable, "-c", script, f"{file}-shm"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
