"""The benchmark compares equal work, and notices failed requests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from bench.__main__ import running, scratch
from bench.load import LANES, Lane, Sample, Target, burst
from bench.measure import DifferentError, compare_answers
from bench.rows import ROWS
from bench.sample import product
from bench.servers import OURS, PEERS, Server
from bench.tracing import HOST, set_traces, watch_traces

ROWS_ON_SQLITE = [row for row in ROWS if row.engine == "sqlite"]
BY_NAME = {row.name: row for row in ROWS}

each_lane = pytest.mark.parametrize(
    ("ours", "lane"), [("http", "http"), ("https", "https"), ("https", "h2")], indirect=["ours"], ids=LANES
)


@pytest.fixture(scope="module")
def ours(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A plughost server for load over HTTP or HTTPS."""
    with scratch() as place, running(OURS[:1], request.param, "sqlite", *place) as (server,):
        server.database.fill(100)
        yield server


def test_the_cost_of_traces_is_measured_on_one_host() -> None:
    """After a reload, the host traces what its caller samples; after another reload it stops."""
    caller = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    with scratch() as place, running([HOST], "http", "sqlite", *place) as (server,):
        for endpoint in ("http://127.0.0.1:9/v1/traces", ""):
            set_traces(server, endpoint)
            assert (b'"trace_id"' in server.ask("GET", "/nowhere", headers=caller)[1]) == bool(endpoint)
        _need("wrk")
        assert watch_traces(server, 1, 1.0)[1].startswith("more with traces: ")


def test_every_peer_answers_as_plughost_does() -> None:
    """On all servers, every row's request has the same status and body, and refusals have the same status."""
    kinds = [kind for kind in (*OURS[:1], *PEERS) if kind.name != "fastapi-2"]
    with scratch() as place, running(kinds, "http", "sqlite", *place) as servers:
        compare_answers(ROWS_ON_SQLITE, servers)
        one_more = json.dumps(product(101))
        single = next(each for each in servers if each.kind.name == "falcon")  # it has one process, thus one memory
        assert single.ask("POST", "/api/v2/products", one_more)[0] == 201
        with pytest.raises(DifferentError, match="GET /api/v2/products"):
            compare_answers([BY_NAME["list"]], servers)


@each_lane
@pytest.mark.parametrize("row", ["get", "create"])
def test_a_burst_is_answered(ours: Server, lane: Lane, row: str) -> None:
    """Reads and creates succeed over HTTP/1.1, HTTPS and HTTP/2, and each create is a new record."""
    sample = _burst(ours, lane, BY_NAME[row].path, BY_NAME[row].body)
    assert sample.requests > 0
    assert sample.failed == 0


@pytest.mark.parametrize("ours", ["http"], indirect=True)
def test_commits_are_counted(ours: Server) -> None:
    """Sequential creates are one commit each; simultaneous ones can be fewer."""
    path = BY_NAME["stored-create"].path
    before = ours.database.commits(path)
    for number in range(1001, 1004):
        assert ours.ask("POST", path, json.dumps(product(number)))[0] == 201
    assert ours.database.commits(path) == before + 3


@each_lane
@pytest.mark.parametrize(("path", "body"), [("/api/v2/products/none", ""), ("/messages", '{"none": "%s %d"}')])
def test_refused_requests_count_as_failed(ours: Server, lane: Lane, path: str, body: str) -> None:
    """A status other than 2xx is a failed request, for reads and creates."""
    sample = _burst(ours, lane, path, body)
    assert sample.failed >= sample.requests > 0


def _burst(server: Server, lane: Lane, path: str, body: str) -> Sample:
    _need("h2load" if lane == "h2" else "wrk")
    method = "POST" if body else "GET"
    headers = (("Content-Type", "application/json"),)
    target = Target(method=method, url=server.url(path), headers=headers, body=body, connections=4)
    return burst(target, lane, 2)


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here to make the load")
