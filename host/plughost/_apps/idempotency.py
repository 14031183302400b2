"""Requests that may be sent again: the answer to the first with an `Idempotency-Key` is the answer to all.

As draft-ietf-httpapi-idempotency-key-header has it. A key is noted before the responder is called, and its answer
before that is sent, each in a transaction of its own. So what a host was killed in the middle of is never done twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost._api.idempotency import table_of
from plughost.stores import Duplicate, OpenStore, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from plughost._api.declarations import Route
    from plughost.http._request import Request
    from plughost.stores import Session

KEPT_SECONDS: Final = 24 * 3600
"""For how long an answer is kept."""

_PATIENCE_SECONDS: Final = 60  # for how long a request without an answer counts as in progress
_BLOCK: Final = 64 * 1024
_COMMON: Final = frozenset({"x-request-id", "x-content-type-options", "vary", "content-length"})
_key: Final = re.compile(r'("?)([\x21\x23-\x5b\x5d-\x7e]{1,255})\1').fullmatch


class Idempotency:
    """The middleware of a route with operations that are idempotent. Other routes don't have it."""

    def __init__(self, methods: Collection[str], store: OpenStore[Session], plugin: str, now: Callable[[], datetime]):
        self._methods = methods
        self._store = store
        self._table = table_of(plugin)
        self._now = now

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Note the key of a request, or answer as before."""
        given = req.get_header("Idempotency-Key") if req.method in self._methods else None
        if given is None:
            return
        found = _key(given.strip())
        if found is None:
            raise falcon.HTTPBadRequest(description="The Idempotency-Key is 1 to 255 visible ASCII characters.")
        who = req.principal.name if req.principal is not None else req.auth or ""
        identity = _digest(req.method, req.env.get("REQUEST_URI", req.path), who, found[2])
        fingerprint, now = _fingerprint(req), int(self._now().timestamp())
        try:
            known = self._store.run(_begin, self._table, identity, fingerprint, now)
        except Duplicate:
            known = fingerprint, now, None, None, None
        if known is None:
            req.context.idempotent = identity
        elif known[0] != fingerprint:
            raise falcon.HTTPUnprocessableEntity(
                description="Another request came with this Idempotency-Key before: use a key once."
            )
        elif known[2] is not None:
            req.context.repeated = known[2:]
            resp.complete = True
        elif now - known[1] < _PATIENCE_SECONDS:
            raise falcon.HTTPConflict(
                description="The first request with this Idempotency-Key is in progress.", headers={"Retry-After": "1"}
            )
        else:
            raise falcon.HTTPServiceUnavailable(
                title="Outcome Unknown",
                description="The first request with this Idempotency-Key has no answer. It may have been done: look"
                " before you ask again, with another key.",
            )

    def process_response(self, req: Request, resp: Any, resource: object, req_succeeded: bool) -> None:
        """Keep the answer, unless it streams, or give the one that was kept.

        A 429 or 5xx with `Retry-After` frees the key: nothing was done.

        Where the store fails now, the answer is sent nevertheless, since the operation has ended as it says.
        """
        repeated = getattr(req.context, "repeated", None)
        if repeated is not None:
            _repeat(resp, *repeated)
        identity = getattr(req.context, "idempotent", None)
        if identity is None:
            return
        with suppress(StoreError):
            if (resp.status_code == 429 or resp.status_code >= 500) and resp.get_header("Retry-After"):
                self._store.run(_forget, self._table, identity)
            elif resp.status_code < 500 and resp.stream is None:
                headers = json.dumps({name: value for name, value in resp.headers.items() if name not in _COMMON})
                try:
                    body = resp.render_body() or b""
                except Exception:
                    self._store.run(_give_up, self._table, identity)
                    raise
                self._store.run(_keep, self._table, identity, (resp.status_code, headers, body))
            else:
                self._store.run(_give_up, self._table, identity)


def compile_idempotency(
    route: Route, plugin: str, store: OpenStore[Session] | None, now: Callable[[], datetime]
) -> Idempotency | None:
    """Return the middleware of a route's idempotent operations. None where it has none."""
    methods = frozenset(method for method, operation in route.operations.items() if operation.idempotent)
    return Idempotency(methods, store, plugin, now) if methods and store is not None else None


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _fingerprint(req: Request) -> str:
    """Return what tells a body, or the version asked for, from another, and leave the body to be read again."""
    sent = filter(None, (req.content_type, req.get_header("API-Version")))
    made = hashlib.sha256("\0".join(sent).encode("utf-8", "surrogatepass"))
    while part := req.stream.read(_BLOCK):
        made.update(part)
    req.env["wsgi.input"].seek(0)
    return made.hexdigest()


def _repeat(resp: falcon.Response, status: int, headers: str, body: bytes) -> None:
    """Answer as before. Whatever version serves by now, `API-Version` is the one that made the answer."""
    resp.status = status
    resp.set_headers(json.loads(headers))
    resp.set_header("Idempotency-Replayed", "true")
    resp.data = bytes(body)


def _begin(session: Session, table: str, identity: str, fingerprint: str, now: int) -> tuple[Any, ...] | None:
    """Note a key. Return what is known of it instead where it is there already."""
    session.change(f"DELETE FROM {table} WHERE begun < ?", now - KEPT_SECONDS)  # noqa: S608 - made of the plugin's name  # nosec B608
    known = session.row(f"SELECT fingerprint, begun, status, headers, body FROM {table} WHERE id = ?", identity)  # noqa: S608 - as above  # nosec B608
    if known is None:
        session.change(f"INSERT INTO {table} (id, fingerprint, begun) VALUES (?, ?, ?)", identity, fingerprint, now)  # noqa: S608 - as above  # nosec B608
    return known


def _keep(session: Session, table: str, identity: str, answer: tuple[int, str, bytes]) -> None:
    sql = f"UPDATE {table} SET status = ?, headers = ?, body = ? WHERE id = ?"  # noqa: S608 - as above  # nosec B608
    session.change(sql, *answer, identity)


def _give_up(session: Session, table: str, identity: str) -> None:
    session.change(f"UPDATE {table} SET begun = begun - ? WHERE id = ?", _PATIENCE_SECONDS, identity)  # noqa: S608 - as above  # nosec B608


def _forget(session: Session, table: str, identity: str) -> None:
    session.change(f"DELETE FROM {table} WHERE id = ?", identity)  # noqa: S608 - as above  # nosec B608
