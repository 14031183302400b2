"""Requests with the same Idempotency-Key are carried out once and get the same response, even after kill -9."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.host.plugins import Plugin, reason
from tests.http.counting_orders import Orders
from tests.waiting import wait_until

from plughost import Operation, Principal, Route, RouteGroup, Store, hookimpl
from plughost.stores import Session, idempotency_store
from plughost.testing import plugin_distribution, running_host, store_settings

if TYPE_CHECKING:
    import falcon


class Client:
    """Sends orders, and knows how often the responder was called."""

    def __init__(self, client: httpx.Client, count: Path, orders: Orders) -> None:
        """Store the client and the file of the count."""
        self.client = client
        self.orders = orders
        self._count = count

    @property
    def calls(self) -> int:
        """The number of calls of the responder."""
        return len(self._count.read_text(encoding="utf-8")) if self._count.exists() else 0

    def order(self, what: str, key: str | None = '"a"', **headers: str) -> httpx.Response:
        """Send an order."""
        given = {} if key is None else {"Idempotency-Key": key}
        return self.client.post("/orders", json=what, headers=given | headers)


@pytest.fixture(params=["sqlite", "postgresql"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """A client of a host on each database."""
    with contextlib.ExitStack() as stack:
        settings = stack.enter_context(store_settings(request.param))
        orders = Orders(tmp_path / "count")
        host = stack.enter_context(
            running_host(distributions=[plugin_distribution("orders", orders)], settings=settings)
        )
        yield Client(stack.enter_context(host.client()), tmp_path / "count", orders)
        orders.gate.set()


def test_a_repeated_request_is_answered_as_before(client: Client) -> None:
    """Status, body and header fields are those of the first answer; a request with another key or none is a new one."""
    first, again = client.order("x"), client.order("x", "a")
    assert (first.status_code, first.json(), first.headers["Location"]) == (
        201,
        {"order": "x", "calls": 1},
        "/orders/1",
    )
    assert (again.status_code, again.content, again.headers["Location"]) == (201, first.content, "/orders/1")
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (None, "true")
    assert first.headers["X-Request-ID"] != again.headers["X-Request-ID"]
    assert client.order("x", '"b"').json()["calls"] == 2
    assert client.order("x", None).json()["calls"] == 3
    assert client.order("x", "a", Authorization="Basic eDp5").json()["calls"] == 4  # another user's keys are separate


_OLD = "INSERT INTO orders_idempotency (id, fingerprint, begun) VALUES (?, '', ?)"


def test_a_request_deletes_the_expired_keys_of_one_second(client: Client) -> None:
    """So a day's expired keys never block the store at once."""
    for number, begun in enumerate((1, 1, 2)):
        client.orders.store.single(Session.change, _OLD, str(number), begun)
    left = []
    for key in "abc":
        client.order("x", key)
        left += client.orders.store.read(Session.rows, "SELECT COUNT(*) FROM orders_idempotency WHERE begun < 3")
    assert [count for [count] in left] == [1, 0, 0]


def test_an_expired_key_is_new_even_before_it_is_deleted(client: Client) -> None:
    """A response is repeated for 24 hours, no longer."""
    client.order("x")
    client.orders.store.single(Session.change, "UPDATE orders_idempotency SET begun = 2")
    client.orders.store.single(Session.change, _OLD, "older", 1)
    assert [client.order("x").json()["calls"] for _ in range(2)] == [2, 2]


def test_a_refusal_is_repeated(client: Client) -> None:
    """A refused request is refused again, without calling the responder."""
    assert [client.order("refused").json()["detail"] for _ in range(2)] == ["Sold out."] * 2
    assert client.calls == 1


def test_a_request_that_was_not_executed_may_be_repeated(client: Client) -> None:
    """A 503 or 429 with Retry-After frees the key."""
    assert [client.order("busy").status_code for _ in range(2)] == [503, 503]
    assert [client.order("limited", "b").status_code for _ in range(2)] == [429, 429]
    assert client.calls == 4


def test_a_key_that_could_not_be_freed_is_freed_later(client: Client) -> None:
    """The store of the keys failed, too, as in an outage; when it is back, the request is executed as announced."""
    refused = client.order("away")
    assert (refused.status_code, "Retry-After" in refused.headers, client.order("away").status_code) == (503, True, 503)
    client.orders.rename("away", "orders_idempotency")
    wait_until(lambda: client.order("x", "b").status_code == 201)
    before = client.calls
    assert (client.order("away").status_code, client.calls) == (503, before + 1)


def test_a_request_that_was_partly_executed_is_not_executed_again(client: Client) -> None:
    """The responder wrote to a store, and found another one busy: `Retry-After` doesn't free the key."""
    first, again = client.order("half"), client.order("half")
    assert (first.status_code, again.status_code, again.json()["title"]) == (503, 503, "Outcome Unknown")
    assert ("Retry-After" in again.headers, client.calls) == (False, 1)


@pytest.mark.parametrize("client", ["postgresql"], indirect=True)
def test_a_request_whose_write_may_have_been_done_is_not_executed_again(client: Client) -> None:
    """The connection broke while the responder wrote, and it answers any error of a store with `Retry-After`."""
    first, again = client.order("cut"), client.order("cut")
    assert (first.status_code, again.status_code, again.json()["title"]) == (503, 503, "Outcome Unknown")
    assert ("Retry-After" in again.headers, client.calls) == (False, 1)


@pytest.mark.parametrize("order", ["broken", "unwritable", "misspelt", "forged", "ended"])
def test_a_failed_request_is_not_executed_again(client: Client, order: str) -> None:
    """It is not repeated, and its outcome is reported as unknown, not as in progress."""
    failed, again = client.order(order), client.order(order)
    assert (failed.status_code, again.status_code, again.json()["title"]) == (500, 503, "Outcome Unknown")
    assert ("Retry-After" in again.headers, client.calls) == (False, 1)


def test_a_clock_set_back_makes_no_request_look_in_progress(tmp_path: Path) -> None:
    """A request without a recorded response was begun in what is the future now; its outcome is unknown."""
    plugins = [plugin_distribution("orders", Orders(tmp_path / "count"))]
    with running_host(distributions=plugins, now=datetime(2026, 1, 1, tzinfo=UTC)) as host, host.client() as sender:
        client = Client(sender, tmp_path / "count", Orders(tmp_path / "count"))
        client.order("broken")
        host.advance(-3600)
        assert (client.order("broken").json()["title"], client.calls) == ("Outcome Unknown", 1)


def test_a_machine_without_a_clock_may_start_in_1970(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin with idempotent operations serves; ZIP files, which know no time before 1980, are no reason to fail."""
    monkeypatch.setattr(time, "time", lambda: 10.0)
    plugins = [plugin_distribution("orders", Orders(tmp_path / "count"))]
    with running_host(distributions=plugins, strict=True) as host, host.client() as client:
        assert client.post("/orders", json="x", headers={"Idempotency-Key": "a"}).status_code == 201


def test_an_executed_request_is_answered_even_if_its_answer_cannot_be_stored(client: Client) -> None:
    """A 503 with Retry-After would say that it was not executed."""
    done = client.order("unkept")
    assert (done.status_code, done.json()["order"], client.calls) == (201, "unkept", 1)


def test_a_streamed_answer_is_not_repeated_as_an_empty_one(client: Client) -> None:
    """A streamed response is not saved, so the outcome of its key is unknown."""
    assert client.order("streamed").content == b"ab"
    assert (client.order("streamed").json()["title"], client.calls) == ("Outcome Unknown", 1)


def test_a_key_is_for_one_request(client: Client) -> None:
    """A key with another body or version is refused, and so is an invalid key."""
    client.order("x")
    assert client.order("y").status_code == 422
    assert client.order("x", **{"API-Version": "1.0"}).status_code == 422
    assert [client.order("x", key).status_code for key in ('""', "a b", '"a', "x" * 256)] == [400] * 4
    assert client.calls == 1


class Uploads:
    """Takes forms, and counts them."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._taken = 0

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Take a form."""
        self._taken += 1
        resp.media = self._taken

    @hookimpl
    def register_stores(self) -> list[Store]:
        """Declare the store of the responses."""
        return [idempotency_store("uploads")]

    @hookimpl
    def register_routes(self) -> list[RouteGroup]:
        """Mount it."""
        post = Operation(summary="Upload", consumes=("multipart/form-data",), idempotent=True)
        return [RouteGroup(prefix="/uploads", routes=(Route("", self, {"POST": post}),))]


def test_a_form_with_another_boundary_is_the_same_request() -> None:
    """Clients make a boundary for each attempt; wherever it lies in the body, only the content counts."""
    with running_host(distributions=[plugin_distribution("uploads", Uploads())]) as host, host.client() as client:

        def upload(content: bytes, key: str) -> tuple[int, bool]:
            files = {"file": ("x.png", content, "image/png"), "next": ("y.png", b"y", "image/png")}
            answer = client.post("/uploads", files=files, headers={"Idempotency-Key": key})
            return answer.status_code, "Idempotency-Replayed" in answer.headers

        for size in (0, *range(64 * 1024 - 320, 64 * 1024, 16)):  # a boundary has 32 characters, a block 64 KiB
            content = b"-" * size
            attempts = [upload(content, f"key-{size}") for _ in range(2)]
            assert attempts == [(200, False), (200, True)]
            assert upload(content + b"-", f"key-{size}") == (422, False)


def test_a_repeated_answer_names_its_original_version(tmp_path: Path) -> None:
    """A replayed response keeps its API-Version, even if that is not supported any more."""
    for versions in (("1.0",), ("1.0", "1.1"), ("2.0",)):
        orders = plugin_distribution("orders", Orders(tmp_path / "count", versions))
        with running_host(distributions=[orders], data_dir=tmp_path / "data") as host, host.client() as client:
            again = client.post("/orders", json="x", headers={"Idempotency-Key": "a"})
            assert (again.headers["API-Version"], again.json()["calls"]) == ("1.0", 1)
            assert client.post("/orders", json="busy").headers["API-Version"] == versions[-1]


def test_a_retry_with_a_new_token_is_the_same_request(tmp_path: Path) -> None:
    """A key belongs to a user, even if the operation leaves it to its responder to find out which."""
    names = Plugin(register_authenticator=lambda context: lambda req: Principal(req.auth.split()[1].split("-")[0]))
    installed = [plugin_distribution("orders", Orders(tmp_path / "count")), plugin_distribution("names", names)]
    with running_host(distributions=installed) as host, host.client() as client:
        sent = [{"Idempotency-Key": "a", "Authorization": f"Bearer {token}"} for token in ("ann-1", "ann-2", "bob-1")]
        answers = [client.post("/orders", json="x", headers=each).json() for each in sent]
    assert [answer["calls"] for answer in answers] == [1, 1, 2]


def test_a_request_in_progress_is_not_started_again(client: Client) -> None:
    """The second gets 409 with Retry-After, and later the response."""
    first = threading.Thread(target=client.order, args=("hang",))
    first.start()
    wait_until(lambda: client.calls == 1)
    answer = client.order("hang")
    assert (answer.status_code, answer.headers["Retry-After"]) == (409, "1")
    client.orders.gate.set()
    first.join()
    assert (client.order("hang").status_code, client.calls) == (201, 1)


@contextlib.contextmanager
def process(*arguments: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Run the host, and kill it."""
    command = [sys.executable, str(Path(__file__).with_name("counting_orders.py")), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        try:
            with httpx.Client(base_url=host.stdout.readline().strip(), timeout=30) as client:
                yield host, client
        finally:
            host.kill()


def test_kill_9_loses_no_answer_and_repeats_nothing(tmp_path: Path) -> None:
    """Finished requests are answered again; interrupted ones are not executed again."""
    data, count = tmp_path / "data", tmp_path / "count"
    done, hung = {"Idempotency-Key": '"done"'}, {"Idempotency-Key": '"hung"'}
    with process(data, count) as (host, client):
        first = client.post("/orders", json="x", headers=done)
        waiting = threading.Thread(target=_ask, args=(str(client.base_url), hung))
        waiting.start()
        wait_until(lambda: count.read_text(encoding="utf-8") == "xx")
        host.kill()
        waiting.join()
    with process(data, count) as (_, client):
        again = client.post("/orders", json="x", headers=done)
        assert (again.status_code, again.content) == (201, first.content)
        assert client.post("/orders", json="hang", headers=hung).status_code == 409
        assert count.read_text(encoding="utf-8") == "xx"


def _ask(url: str, headers: dict[str, str]) -> None:
    with contextlib.suppress(httpx.TransportError):
        httpx.post(f"{url}/orders", json="hang", headers=headers, timeout=60)


def test_a_plugin_without_the_store_fails_with_the_reason() -> None:
    """Without the store, its responses could not be saved."""
    routes = (Route("", Orders(Path()), {"POST": Operation(summary="Order", idempotent=True)}),)
    plugin: Any = Plugin(register_routes=lambda context: [RouteGroup(prefix="/orders", routes=routes)])
    with running_host(distributions=[plugin_distribution("orders", plugin)]) as host:
        assert "return plughost.stores.idempotency_store('orders') from register_stores" in reason(host, "orders")
