"""A host process with one plugin that receives and sends files: `python large_files.py ENGINE FOLDER`."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import send_file
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

LIMIT: Final = 3 * 2**30


class Files:
    """Stores one file."""

    def __init__(self, path: Path) -> None:
        """Store the path."""
        self._path = path

    def on_put(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Store the body, and answer with its digest."""
        with self._path.open("wb") as target:
            shutil.copyfileobj(req.stream, target, 65536)
        with self._path.open("rb") as kept:
            resp.text = hashlib.file_digest(kept, "sha256").hexdigest()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send the file."""
        send_file(req, resp, self._path)

    @hookimpl
    def register_routes(self, context: Any) -> list[RouteGroup]:
        """Mount it."""
        put = Operation(summary="Put it", produces=(), consumes=("application/octet-stream",), body_limit=LIMIT)
        get = Operation(summary="Get it", produces=())
        return [RouteGroup(prefix="/file", routes=(Route("", self, {"PUT": put, "GET": get}),))]


def main(engine: str, folder: Path) -> None:
    """Serve until the standard input ends."""
    plugin = plugin_distribution("files", Files(folder / "kept"))
    with running_host(distributions=[plugin], settings={"sites": {"main": {"http_engine": engine}}}) as host:
        certificate = host.host.tls.certificate if host.host.tls is not None else ""
        sys.stdout.write(f"{host.url()} {host.url(scheme='https')} {certificate}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
