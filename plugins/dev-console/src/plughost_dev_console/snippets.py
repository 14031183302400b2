"""Code snippets for a request: curl, HTTPie and Python."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plughost_dev_console.forms import Outgoing


def snippets(outgoing: Outgoing, base: str) -> list[tuple[str, str]]:
    """Return pairs of a tool's name and its snippet for a request. A token is read from the variable TOKEN.

    Args:
        outgoing: The request.
        base: The address of its site.
    """
    url = base + outgoing.target
    headers = dict(outgoing.headers)
    bearer, basic = outgoing.authorization.startswith("Bearer "), outgoing.authorization.startswith("Basic ")
    body = outgoing.body.decode() if outgoing.body is not None else None
    return [
        ("curl", _curl(outgoing.method, url, headers, body, bearer=bearer, basic=basic)),
        ("HTTPie", _httpie(outgoing.method, url, headers, body, bearer=bearer, basic=basic)),
        ("Python", _python(outgoing.method, url, headers, body, bearer=bearer, basic=basic)),
    ]


def _curl(method: str, url: str, headers: dict[str, str], body: str | None, *, bearer: bool, basic: bool) -> str:
    words = ["curl", "-g", "-i", *(["-X", method] if method != "GET" else []), shlex.quote(url)]
    words += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    words += ['-H "Authorization: Bearer $TOKEN"'] * bearer + ["-u EMAIL:PASSWORD"] * basic
    words += [f"--data-binary {shlex.quote(body)}"] if body is not None else []
    return " ".join(words)


def _httpie(method: str, url: str, headers: dict[str, str], body: str | None, *, bearer: bool, basic: bool) -> str:
    words = ["http"]
    words += ["-A", "bearer", "-a", '"$TOKEN"'] * bearer + ["-a", "EMAIL:PASSWORD"] * basic
    words += ["--raw", shlex.quote(body)] if body is not None else ["--ignore-stdin"]
    words += [method, shlex.quote(url), *(shlex.quote(f"{name}:{value}") for name, value in headers.items())]
    return " ".join(words)


def _python(method: str, url: str, headers: dict[str, str], body: str | None, *, bearer: bool, basic: bool) -> str:
    lines = ["import os", ""] * bearer + ["import httpx", ""]
    given: list[tuple[str, Any]] = []
    if headers or bearer:
        written = [f"{name!r}: {value!r}" for name, value in headers.items()]
        written += ['"Authorization": f"Bearer {os.environ[\'TOKEN\']}"'] * bearer
        given.append(("headers", f"{{{', '.join(written)}}}"))
    given += [("auth", '("EMAIL", "PASSWORD")')] * basic
    given += [("content", repr(body.encode()) if not body.isascii() else repr(body))] if body is not None else []
    lines += ["answer = httpx.request(", f"    {method!r},", f"    {url!r},"]
    lines += [f"    {name}={value}," for name, value in given]
    return "\n".join([*lines, ")", "print(answer.status_code, answer.text)"])
