"""A host process with a plugin whose orders are idempotent: `python counting_orders.py DATA COUNT`."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import falcon

from plughost import Operation, Route, RouteGroup, Store, hookimpl
from plughost.http import read_json
from plughost.stores import OpenStore, Session, StoreError, idempotency_store
from plughost.testing import plugin_distribution, running_host

_WRITES = {
    "half": "UPDATE orders_idempotency SET begun = begun",
    "cut": "UPDATE orders_idempotency SET begun = begun WHERE pg_terminate_backend(pg_backend_pid())",
    "unkept": "DROP TABLE orders_idempotency",
}


class Orders:
    """Counts its calls in a file that survives the process."""

    def __init__(self, count: Path, versions: tuple[str, ...] = ()) -> None:
        """Store the file's path and the minor versions."""
        self.versions = versions
        self._count = count
        self.gate = threading.Event()
        self._context: Any = None

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Count the call, and answer as the body says."""
        order = read_json(req)
        with self._count.open("a", encoding="utf-8") as count:
            count.write("x")
        if order == "hang":
            self.gate.wait(60)
        if order == "away":
            self.rename("orders_idempotency", "away")
        if order in _WRITES:
            with suppress(StoreError):
                self._context.stores["orders-idempotency"].single(Session.change, _WRITES[order])
        if order in {"away", "busy", "cut", "half"}:
            raise falcon.HTTPServiceUnavailable(retry_after=1)
        if order == "limited":
            raise falcon.HTTPTooManyRequests(retry_after=1)
        if order == "broken":
            raise ValueError("broken")
        if order == "refused":
            raise falcon.HTTPConflict(description="Sold out.")
        resp.status = 201
        if order == "streamed":
            resp.stream = iter([b"a", b"b"])
            return
        if order == "unwritable":
            resp.media = object()
            return
        _spoil(resp, order)
        resp.set_header("Location", "/orders/1")
        resp.media = {"order": order, "calls": len(self._count.read_text(encoding="utf-8"))}

    @property
    def store(self) -> OpenStore[Session]:
        """The store of the answers."""
        store: OpenStore[Session] = self._context.stores["orders-idempotency"]
        return store

    def rename(self, table: str, name: str) -> None:
        """Rename a table as an operator would."""
        with self._context.stores["orders-idempotency"].database.administer() as db:
            db.script(f"ALTER TABLE {table} RENAME TO {name}")

    @hookimpl
    def register_stores(self, context: Any) -> list[Store[Session]]:
        """Declare the store of the answers."""
        return [idempotency_store("orders")]

    @hookimpl
    def register_routes(self, context: Any) -> list[RouteGroup]:
        """Mount it."""
        self._context = context
        post = Operation(summary="Order", idempotent=True)
        return [RouteGroup(prefix="/orders", routes=(Route("", self, {"POST": post}),), versions=self.versions)]


def _spoil(resp: falcon.Response, order: Any) -> None:
    """End in a way that the host finds out late."""
    if order == "misspelt":
        resp.status = "created"
    if order == "forged":
        resp.set_header("X-Order", "a\r\nb")
    if order == "ended":
        sys.exit("ended")


def main(data: Path, count: Path) -> None:
    """Serve until killed."""
    with running_host(distributions=[plugin_distribution("orders", Orders(count))], data_dir=data) as host:
        sys.stdout.write(f"{host.url()}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
