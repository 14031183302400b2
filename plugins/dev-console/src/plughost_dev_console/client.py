"""An HTTP client that sends requests to this host's own listeners."""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec

from plughost import CertificateError, about_to_wait
from plughost.http import MalformedJSON, decode

if TYPE_CHECKING:
    from plughost import HostView
    from plughost_dev_console.forms import Outgoing

_MAX_BYTES: Final = 128 * 1024
_SECONDS: Final = 30.0
_STREAM_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to a request, or the error.

    Attributes:
        status: The status code; 0 without a response.
        reason: The reason phrase, or the error.
        milliseconds: The time until the response was read.
        body: The body, formatted for people.
        note: What is omitted from the body, or an empty string.
    """

    status: int
    reason: str
    milliseconds: float
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    note: str = ""
    request_id: str = ""


def send(host: HostView, outgoing: Outgoing) -> Answer:
    """Send a request to a listener of this host, and return the response."""
    about_to_wait(long=True)
    begun = perf_counter()
    try:
        with closing(_connection(host, outgoing)) as connection:
            login = {"Authorization": outgoing.authorization} if outgoing.authorization else {}
            connection.request(outgoing.method, outgoing.target, outgoing.body, {**outgoing.headers, **login})
            response = connection.getresponse()
            raw, note = _read(response)
    except (OSError, http.client.HTTPException, ValueError, LookupError, CertificateError) as error:
        return Answer(status=0, reason=f"{type(error).__name__}: {error}", milliseconds=_since(begun))
    shown, kind = _readable(raw, response.getheader("Content-Type", ""))
    return Answer(
        status=response.status,
        reason=response.reason,
        milliseconds=_since(begun),
        headers=tuple(response.getheaders()),
        body=shown,
        note=" ".join(each for each in (kind, note) if each),
        request_id=response.getheader("X-Request-ID", ""),
    )


def _connection(host: HostView, outgoing: Outgoing) -> http.client.HTTPConnection:
    """Return a connection to the listener, on the loopback. It raises a LookupError if the site has none such."""
    wanted = (outgoing.site, outgoing.scheme)
    listeners = [(each, port) for each, port in host.listeners.items() if (each.site, each.scheme) == wanted]
    if not listeners:
        raise LookupError(f"the site {outgoing.site} has no {outgoing.scheme} listener")
    listener, port = listeners[0]
    address = "::1" if ":" in listener.address else "127.0.0.1"
    if outgoing.scheme == "http":
        return http.client.HTTPConnection(address, port, timeout=_SECONDS)
    return http.client.HTTPSConnection(address, port, timeout=_SECONDS, context=_own_certificate(host))


def _own_certificate(host: HostView) -> ssl.SSLContext:
    """Return a context that trusts only this host's certificate, for any name."""
    certificate = host.certificate()
    if certificate is None:
        raise LookupError("the host has no certificate")
    context = ssl.create_default_context(cafile=str(certificate.path))
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _read(response: http.client.HTTPResponse) -> tuple[bytes, str]:
    """Return the part of the body that is shown, and a note on the rest."""
    raw, begun = bytearray(), perf_counter()
    while len(raw) < _MAX_BYTES:
        part = response.read1(_MAX_BYTES - len(raw))
        if not part:
            return bytes(raw), ""
        raw += part
        if perf_counter() - begun > _STREAM_SECONDS:
            return bytes(raw), f"The stream continues; these are the first {_STREAM_SECONDS:g} seconds."
    return bytes(raw), f"These are the first {_MAX_BYTES // 1024} KiB."


def _readable(raw: bytes, content_type: str) -> tuple[str, str]:
    """Return a body as text, with JSON indented, or a note that it is not text."""
    media_type = content_type.partition(";")[0].strip().lower()
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return "", f"{len(raw):,} bytes of {media_type or 'an unknown type'}, which are not text."
    if media_type == "application/json" or media_type.endswith("+json"):
        with suppress(MalformedJSON):  # it is shown unchanged; so is deep JSON, which indentation would inflate
            decode(raw)
            return msgspec.json.format(text, indent=2), ""
    return text, ""


def _since(begun: float) -> float:
    return (perf_counter() - begun) * 1000
