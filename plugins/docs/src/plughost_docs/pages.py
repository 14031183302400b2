"""The resources below `/q/docs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import falcon

from plughost.http import send_file

if TYPE_CHECKING:
    from pathlib import Path

    from plughost.http import Request

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Allow only this host; the search also fetches the pages that it finds."""


class FrontPageRedirect:
    """Redirects the prefix to the front page, since relative links would be wrong at the prefix."""

    def __init__(self, front: str) -> None:
        self._front = front

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Redirect to the front page."""
        raise falcon.HTTPFound(self._front)


class Pages:
    """The pages, and the files that they load."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; nothing else is served."""
        self._folder = folder

    def on_get(self, req: Request, resp: falcon.Response, **parts: str) -> None:
        """Send a file."""
        if not self._folder.is_dir():
            raise falcon.HTTPNotFound(
                description="The documentation isn't built yet: in a checkout, ./dev serve builds it in a minute, "
                "and ./dev docs says what is wrong."
            )
        names = parts.values()
        if any(name in (".", "..") or "/" in name for name in names):
            raise falcon.HTTPNotFound(description="There is no such page.")
        resp.set_header("Content-Security-Policy", POLICY)
        resp.set_header("Referrer-Policy", "no-referrer")
        resp.set_header("Cache-Control", "no-cache")
        media_type = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
        file = self._folder.joinpath(*names)
        send_file(req, resp, file, media_type=media_type.get(file.suffix, ""))
