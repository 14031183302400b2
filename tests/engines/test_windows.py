"""Responses that HTTP/2 holds back because the client's flow-control window is full."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import h2.connection
import h2.events
import pytest
from tests.lanes import LANES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse

    from tests.engines.conftest import Environ, Serve

WINDOW = 65535
"""Bytes that a client takes ahead."""
REQUEST = [(":method", "GET"), (":path", "/"), (":scheme", "https"), (":authority", "localhost")]


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize(("size", "part"), [(66_000, 66_000), (600_000, 600_000), (66_000, 1000), (100_000, 65_536)])
def test_a_drain_waits_for_a_full_window(serve: Serve, size: int, part: int, taken: bool) -> None:
    """It waits longer than the idle time-out; a response that is never read does not count as answered."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(size))])
        return [bytes(size)] if part == size else (bytes(min(part, size - at)) for at in range(0, size, part))

    served = serve(application, LANES[3])
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.send_headers(1, REQUEST, end_stream=True)
    received = 0
    with served.connect(protocol="h2") as connection, ThreadPoolExecutor() as pool:

        def receive(until: int) -> None:
            nonlocal received
            while received < until:
                connection.sendall(client.data_to_send())
                for event in client.receive_data(connection.recv(65536)):
                    received += len(event.data) if isinstance(event, h2.events.DataReceived) else 0

        receive(WINDOW)
        answered = pool.submit(served.engine.drain, 20.0 if taken else 3.0)
        concurrent.futures.wait([answered], 2.5 if taken else 20.0)
        if taken:
            client.increment_flow_control_window(size)
            client.increment_flow_control_window(size, 1)
            receive(size)
        assert answered.result(20) is taken
