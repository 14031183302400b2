"""Security headers: off by default, and never in place of a plugin's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .conftest import NotesPlugin, notes_host

if TYPE_CHECKING:
    import falcon

    from plughost.http import Request

ON = {"main": {"security_headers": {"enabled": True, "hsts": 3600, "permissions_policy": "camera=()"}}}


class Framed:
    """A resource with its own policy."""

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.media = {}
        resp.set_header("Content-Security-Policy", "default-src 'self'")
        resp.set_header("Strict-Transport-Security", "max-age=60")


def test_by_default_there_is_only_nosniff() -> None:
    """No policy is sent unless the settings ask for it."""
    with notes_host(NotesPlugin(None)) as host, host.client() as client:
        headers = client.get("/notes").headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not {"x-frame-options", "content-security-policy", "strict-transport-security"} & set(headers)


def test_enabled_headers_are_on_every_answer() -> None:
    """Successes and errors have them; HSTS is sent over HTTPS only, where browsers respect it."""
    with notes_host(NotesPlugin(None), sites=ON) as host, host.client() as plain, host.client(scheme="https") as secure:
        for client, path in ((plain, "/notes"), (secure, "/notes"), (secure, "/nothing")):
            headers = client.get(path).headers
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Permissions-Policy"] == "camera=()"
            assert headers.get("Strict-Transport-Security") == ("max-age=3600" if client is secure else None)


def test_a_plugins_own_headers_stay() -> None:
    """A page that needs another policy can set it."""
    with notes_host(NotesPlugin(None, resource=Framed()), sites=ON) as host, host.client(scheme="https") as client:
        headers = client.get("/notes").headers
    assert headers["Content-Security-Policy"] == "default-src 'self'"
    assert headers["Strict-Transport-Security"] == "max-age=60"


def test_an_empty_text_disables_a_header() -> None:
    """Each header can be left out."""
    off: dict[str, Any] = {"main": {"security_headers": {"enabled": True, "frame_options": "", "referrer_policy": ""}}}
    with notes_host(NotesPlugin(None), sites=off) as host, host.client() as client:
        assert not {"x-frame-options", "referrer-policy"} & set(client.get("/notes").headers)
