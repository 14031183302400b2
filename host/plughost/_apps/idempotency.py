"""Safe repetition of requests: all requests with the same `Idempotency-Key` get the response to the first.

This follows draft-ietf-httpapi-idempotency-key-header. A key is recorded before the responder is called, and the
response before it is sent, each in its own transaction. So a request is never carried out twice, even if the host is
killed meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost._api.idempotency import table_of
from plughost.http._environ import ON_FAILURE
from plughost.http._request import principal_of
from plughost.stores import Duplicate, OpenStore, OutcomeUnknown, StoreError
from plughost.stores._pool import current_operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from plughost._api.declarations import Principal
    from plughost.http._request import Request
    from plughost.stores import Session

_RETENTION_SECONDS: Final = 24 * 3600
_IN_PROGRESS_SECONDS: Final = 60  # how long a request without a response counts as in progress
_BLOCK_BYTES: Final = 64 * 1024
_UNSAVED_HEADERS: Final = frozenset({"x-request-id", "x-content-type-options", "vary", "content-length"})
_match_key: Final = re.compile(r'("?)([\x21\x23-\x5b\x5d-\x7e]{1,255})\1').fullmatch


class Idempotency:
    """The middleware of a plugin's idempotent operations."""

    def __init__(
        self,
        store: OpenStore[Session],
        plugin: str,
        now: Callable[[], datetime],
        authenticator: Callable[[Request], Principal | None] | None = None,
    ) -> None:
        self._store = store
        self._authenticator = authenticator
        self._table = table_of(plugin)
        self._now = now
        self._unfreed: dict[str, int] = {}  # keys of refused requests whose store has failed since, and when they began

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        header = req.get_header("Idempotency-Key")
        if header is None:
            return
        match = _match_key(header.strip())
        if match is None:
            raise falcon.HTTPBadRequest(description="The Idempotency-Key is 1 to 255 visible ASCII characters.")
        key_id = _digest(req.method, req.env.get("REQUEST_URI", req.path), self._client_of(req), match[2])
        fingerprint, now = _fingerprint(req), int(self._now().timestamp())
        if (unfreed := self._unfreed.pop(key_id, None)) is not None:
            self._free(key_id, unfreed)
        try:
            earlier = self._store.run(_record_key, self._table, key_id, fingerprint, now)
        except Duplicate:
            earlier = fingerprint, now, None, None, None
        if earlier is None:
            req.context.idempotency_key_id, req.context.key_begun = key_id, now
            req.context.writes_before = current_operation.writes
            req.env[ON_FAILURE] = partial(self._mark_unknown, key_id)
            return
        earlier_fingerprint, begun, *response = earlier
        if earlier_fingerprint != fingerprint:
            raise falcon.HTTPUnprocessableEntity(
                description="This Idempotency-Key was used for a different request: use each key once."
            )
        if response[0] is not None:
            req.context.replayed_response = response
            resp.complete = True
        elif abs(now - begun) < _IN_PROGRESS_SECONDS:  # the clock may have been set back
            raise falcon.HTTPConflict(
                description="The first request with this Idempotency-Key is in progress.", headers={"Retry-After": "1"}
            )
        else:
            raise falcon.HTTPServiceUnavailable(
                title="Outcome Unknown",
                description="The first request with this Idempotency-Key has no recorded response. It may have been"
                " done: check before you repeat it with another key.",
            )

    def process_response(self, req: Request, resp: Any, resource: object, req_succeeded: bool) -> None:
        """Save the response, unless it streams, or replay a saved one.

        A 429 or 5xx with `Retry-After` frees the key, unless the responder wrote to a store before that.

        If the store fails now, the response is sent nevertheless: the operation is complete.
        """
        replayed = getattr(req.context, "replayed_response", None)
        if replayed is not None:  # its `API-Version` is the one that produced it, whichever version serves now
            resp.status, headers, body = replayed
            resp.set_headers(json.loads(headers))
            resp.set_header("Idempotency-Replayed", "true")
            resp.data = bytes(body)
        if ON_FAILURE not in req.env:
            return
        key_id = req.context.idempotency_key_id
        with suppress(StoreError):
            is_refusal = (resp.status_code == 429 or resp.status_code >= 500) and resp.get_header("Retry-After")
            if is_refusal and current_operation.writes == req.context.writes_before:
                self._free(key_id, req.context.key_begun)
            elif resp.status_code < 500 and resp.stream is None:
                headers = json.dumps(
                    {name: value for name, value in resp.headers.items() if name not in _UNSAVED_HEADERS}
                )
                body = resp.render_body() or b""
                sql = "UPDATE {table} SET status = ?, headers = ?, body = ? WHERE id = ?"
                self._change(sql, resp.status_code, headers, body, key_id)
            else:
                self._mark_unknown(key_id)
        del req.env[ON_FAILURE]

    def _client_of(self, req: Request) -> str:
        """Return the user, even of an operation without `security`: a retry may have a new token."""
        with suppress(falcon.HTTPError):  # bad credentials, which the responder refuses or ignores
            principal = principal_of(req, self._authenticator)
            if principal is not None:
                return principal.name
        return req.auth or ""

    def _free(self, key_id: str, begun: int) -> None:
        """Forget a key, later if the store fails now; never if another request may have recorded it since."""
        try:
            self._change("DELETE FROM {table} WHERE id = ? AND begun = ?", key_id, begun)
        except OutcomeUnknown:
            raise
        except StoreError:
            self._unfreed[key_id] = begun

    def _mark_unknown(self, key_id: str) -> None:
        with suppress(StoreError):
            self._change("UPDATE {table} SET begun = begun - ? WHERE id = ?", _IN_PROGRESS_SECONDS, key_id)

    def _change(self, sql: str, *values: object) -> None:
        self._store.run(lambda session: session.change(sql.format(table=self._table), *values))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _fingerprint(req: Request) -> str:
    """Return a digest of the body and the requested version, and rewind the body.

    The boundary of a multipart body doesn't count: clients make another one for each attempt (RFC 2046, 5.1.1).
    """
    kind, parameters = falcon.parse_header(req.content_type or "")
    boundary = parameters.get("boundary") if kind.lower().startswith("multipart/") else None
    headers = filter(None, (kind if boundary else req.content_type, req.get_header("API-Version")))
    digest = hashlib.sha256("\0".join(headers).encode("utf-8", "surrogatepass"))
    parts = iter(lambda: req.stream.read(_BLOCK_BYTES), b"")
    for part in _without(f"--{boundary}".encode("latin-1", "replace"), parts) if boundary else parts:
        digest.update(part)
    req.env["wsgi.input"].seek(0)
    return digest.hexdigest()


def _without(delimiter: bytes, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts of a text with `--` in place of each delimiter, also of one that is split between two parts."""
    rest, overlap = b"", len(delimiter) - 1
    for part in parts:
        *whole, rest = (rest + part).split(delimiter)
        yield from (each + b"--" for each in whole)
        yield rest[:-overlap]
        rest = rest[-overlap:]
    yield rest


def _record_key(session: Session, table: str, key_id: str, fingerprint: str, now: int) -> tuple[Any, ...] | None:
    """Record a key. Return its row instead if it is recorded already."""
    kept_since = now - _RETENTION_SECONDS
    # Only those of the oldest second: to delete a day's keys at once would block the store for minutes.
    session.change(f"DELETE FROM {table} WHERE begun < ? AND begun = (SELECT MIN(begun) FROM {table})", kept_since)  # noqa: S608 - from the plugin's name  # nosec B608
    earlier = session.row(f"SELECT fingerprint, begun, status, headers, body FROM {table} WHERE id = ?", key_id)  # noqa: S608 - as above  # nosec B608
    if earlier is not None and earlier[1] < kept_since:
        session.change(f"DELETE FROM {table} WHERE id = ?", key_id)  # noqa: S608 - as above  # nosec B608
        earlier = None
    if earlier is None:
        session.change(f"INSERT INTO {table} (id, fingerprint, begun) VALUES (?, ?, ?)", key_id, fingerprint, now)  # noqa: S608 - as above  # nosec B608
    return earlier
