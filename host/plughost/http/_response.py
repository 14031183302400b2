"""The response that a site's Falcon app makes: Falcon's, which takes what every response carries in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import falcon

from plughost.http._fields import is_fit
from plughost.http._json.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping


class Response(falcon.Response):
    """Falcon's response, for the host's own part in it. Resources and middleware take it for Falcon's."""

    def add_common(self, fields: Mapping[str, str], request_id: str) -> None:
        """Set header fields known since the site was built. One by one would take three times as long.

        Their names are in lower case. What `vary` names is added to what the response varies by already.

        Raises:
            ValueError: A field that is there already can't be sent; it is dropped.
        """
        headers = self._headers
        unfit: tuple[str, ...] = ()
        for name, value in headers.items():
            if not is_fit(name, value):
                unfit += (name,)
        for name in unfit:
            del headers[name]
        vary = headers.get("vary")
        headers.update(fields)
        headers["x-request-id"] = request_id
        if vary is not None and "vary" in fields:
            headers["vary"] = _merged(vary, fields["vary"])
        if unfit:
            raise ValueError(f"the names or values of these headers can't be sent: {unfit!r}")

    def check_body(self) -> None:
        """Render the body, and look whether it can be sent, as far as that is known before it is.

        Raises:
            TypeError: It, or a part of it, is not bytes (PEP 3333).
        """
        if self._media is not None or self.text is not None:
            self.render_body()
        elif self._data is not None:
            check_part(self._data)
        elif type(self.stream) is list:
            for part in self.stream:
                check_part(part)

    def render_body(self) -> bytes | None:
        """Return the body; of media without a type, which is JSON then, and goes no detour by its handler."""
        headers = self._headers
        if self._media is not None and "content-type" not in headers and self.text is None and self._data is None:
            headers["content-type"] = falcon.MEDIA_JSON
            self._media_rendered = encode(self._media)
        body = super().render_body()
        if type(body) is not bytes and body is not None:
            check_part(body)
        return body

    def _wsgi_headers(self, media_type: str | None = None) -> list[tuple[str, str]]:
        """Return what Falcon sends, but for the Content-Type which it gives to every body where that is empty."""
        headers = self._headers
        if headers.get("content-length") == "0":
            headers.pop("content-type", None)
        elif media_type is not None and "content-type" not in headers:
            headers["content-type"] = media_type
        if self._extra_headers is None and self._cookies is None:
            return list(headers.items())
        return super()._wsgi_headers(None)


def check_part(part: object) -> None:
    """Refuse what no server takes for a body or a part of one.

    Raises:
        TypeError: It is not bytes (PEP 3333).
    """
    if not isinstance(part, bytes):
        raise TypeError(f"a response's body is made of bytes (PEP 3333), not of {type(part).__name__}")


def _merged(one: str, other: str) -> str:
    """Return the names of two comma-separated lists, each once whatever its case."""
    names: dict[str, str] = {}
    for name in f"{one},{other}".split(","):
        names.setdefault(name.strip().lower(), name.strip())
    return ", ".join(names.values())
