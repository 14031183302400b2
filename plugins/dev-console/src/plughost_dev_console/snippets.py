"""Code snippets for a request: curl, HTTPie and Python."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plughost_dev_console.forms import Outgoing

# The options for a request's credentials, by their scheme. A token is read from the variable TOKEN.
_CURL_OPTIONS = {"Bearer": '-H "Authorization: Bearer $TOKEN"', "Basic": "-u EMAIL:PASSWORD"}
_HTTPIE_OPTIONS = {"Bearer": '-A bearer -a "$TOKEN"', "Basic": "-a EMAIL:PASSWORD"}


def snippets(request: Outgoing, base: str) -> list[tuple[str, str]]:
    """Return pairs of a tool's name and its snippet for a request. `base` is the address of its site."""
    url, scheme = base + request.target, request.authorization.partition(" ")[0]
    body = request.body.decode() if request.body is not None else None
    return [
        ("curl", _curl(request, url, scheme, body)),
        ("HTTPie", _httpie(request, url, scheme, body)),
        ("Python", _python(request, url, scheme, body)),
    ]


def _curl(request: Outgoing, url: str, scheme: str, body: str | None) -> str:
    words = ["curl", "-g", "-i", *(["-X", request.method] if request.method != "GET" else []), shlex.quote(url)]
    words += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in request.headers.items()]
    words += [_CURL_OPTIONS[scheme]] if scheme in _CURL_OPTIONS else []
    words += [f"--data-binary {shlex.quote(body)}"] if body is not None else []
    return " ".join(words)


def _httpie(request: Outgoing, url: str, scheme: str, body: str | None) -> str:
    words = ["http", *([_HTTPIE_OPTIONS[scheme]] if scheme in _HTTPIE_OPTIONS else [])]
    words += ["--raw", shlex.quote(body)] if body is not None else ["--ignore-stdin"]
    words += [request.method, shlex.quote(url)]
    words += [shlex.quote(f"{name}:{value}") for name, value in request.headers.items()]
    return " ".join(words)


def _python(request: Outgoing, url: str, scheme: str, body: str | None) -> str:
    lines = ["import os", ""] if scheme == "Bearer" else []
    lines += ["import httpx", "", "answer = httpx.request(", f"    {request.method!r},", f"    {url!r},"]
    headers = [f"{name!r}: {value!r}" for name, value in request.headers.items()]
    if scheme == "Bearer":
        headers.append('"Authorization": f"Bearer {os.environ[\'TOKEN\']}"')
    if headers:
        lines.append(f"    headers={{{', '.join(headers)}}},")
    if scheme == "Basic":
        lines.append('    auth=("EMAIL", "PASSWORD"),')
    if body is not None:
        lines.append(f"    content={(body if body.isascii() else body.encode())!r},")
    return "\n".join([*lines, ")", "print(answer.status_code, answer.text)"])
