"""The pages at `/q/docs`, with `--dev` or by setting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, Field

from plughost import Operation, Response, Route, RouteGroup, hookimpl
from plughost_docs.pages import FrontPageRedirect, Pages

if TYPE_CHECKING:
    from plughost import PluginContext

PREFIX: Final = "/q/docs"
_DEPTH: Final = 3  # a field of a route matches one path segment


class Settings(BaseModel):
    """The plugin's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool | None = Field(None, description="Serve /q/docs; by default with --dev only", examples=[True])


class Plugin:
    """Serves a folder of pages."""

    def __init__(self, folder: Path) -> None:
        """Take the folder that `build_site.py` makes; it need not exist yet."""
        self._folder = folder

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model that validates `[plugins.docs]`."""
        return Settings

    @hookimpl
    def register_routes(self, context: PluginContext[Settings]) -> list[RouteGroup]:
        """Mount the pages."""
        enabled = context.settings.enabled
        if not (context.dev if enabled is None else enabled):
            return []
        redirect = Response(description="Go to the front page.", media_types=(), headers={"Location": "Its path."})
        front = {"GET": Operation(summary="Go to the front page", responses={302: redirect}, produces=())}
        found = Response(description="The file.", model=bytes, media_types=("text/html",))
        page = {"GET": Operation(summary="Get a page, or a file that it loads", responses={200: found}, produces=())}
        pages, parts = Pages(self._folder), [f"/{{part{number}}}" for number in range(_DEPTH)]
        deeper = [Route("".join(parts[:depth]), pages, page) for depth in range(1, _DEPTH + 1)]
        routes = (Route("", FrontPageRedirect(f"{PREFIX}/index.html"), front), *deeper)
        return [RouteGroup(prefix=PREFIX, routes=routes, title="Documentation", described=False)]


plugin: Final = Plugin(Path(__file__).parent / "html")
