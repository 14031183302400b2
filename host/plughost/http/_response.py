"""Falcon's response, which sets the header fields of every response at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import falcon

from plughost.http._fields import is_valid_header
from plughost.http._json.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping


class Response(falcon.Response):
    """Falcon's response, with additions for the host. Resources and middleware use it as Falcon's."""

    def add_common(self, fields: Mapping[str, str], request_id: str) -> None:
        """Set the header fields known since the site was built: one by one would take three times as long.

        Names are in lower case. `vary` is merged with the response's own.

        Raises:
            ValueError: A field that the response already has is invalid; it is dropped.
        """
        headers = self._headers
        invalid: tuple[str, ...] = ()
        for name, value in headers.items():
            if not is_valid_header(name, value):
                invalid += (name,)
        for name in invalid:
            del headers[name]
        vary = headers.get("vary")
        headers.update(fields)
        headers["x-request-id"] = request_id
        if vary is not None and "vary" in fields:
            headers["vary"] = _merge_lists(vary, fields["vary"])
        if invalid:
            raise ValueError(f"the names or values of these headers can't be sent: {invalid!r}")

    def check_body(self) -> None:
        """Render the body and check, as far as possible beforehand, that it is made of bytes."""
        if self._media is not None or self.text is not None:
            self.render_body()
        elif self._data is not None:
            check_part(self._data)
        elif type(self.stream) is list:
            for part in self.stream:
                check_part(part)

    def render_body(self) -> bytes | None:
        """Return the body. Media without a Content-Type is encoded as JSON directly, without a media handler."""
        headers = self._headers
        if self._media is not None and "content-type" not in headers and self.text is None and self._data is None:
            headers["content-type"] = falcon.MEDIA_JSON
            self._media_rendered = encode(self._media)
        body = super().render_body()
        if type(body) is not bytes and body is not None:
            check_part(body)
        return body

    def _wsgi_headers(self, media_type: str | None = None) -> list[tuple[str, str]]:
        """Return Falcon's headers, without the Content-Type that Falcon sets even for an empty body."""
        headers = self._headers
        if headers.get("content-length") == "0":
            headers.pop("content-type", None)
        elif media_type is not None and "content-type" not in headers:
            headers["content-type"] = media_type
        if self._extra_headers is None and self._cookies is None:
            return list(headers.items())
        return super()._wsgi_headers(None)


def check_part(part: object) -> None:
    """Raise `TypeError` if a body, or a part of one, isn't bytes (PEP 3333)."""
    if not isinstance(part, bytes):
        raise TypeError(f"a response's body is made of bytes (PEP 3333), not of {type(part).__name__}")


def _merge_lists(one: str, other: str) -> str:
    """Merge two comma-separated lists of names; each name stays once, whatever its case."""
    names: dict[str, str] = {}
    for name in f"{one},{other}".split(","):
        names.setdefault(name.strip().lower(), name.strip())
    return ", ".join(names.values())
