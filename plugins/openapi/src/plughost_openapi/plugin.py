"""The API description and Swagger UI (CONTRACT 8), generated from the plugins' declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plughost import Middleware, Operation, Parameter, Response, Route, RouteGroup, hookimpl
from plughost_openapi.addresses import Addresses
from plughost_openapi.cross_origin import TryItOut
from plughost_openapi.document import OPENAPI
from plughost_openapi.resources import FOLDER, OFFERS, Asset, Description, SwaggerUI
from plughost_openapi.settings import Settings

if TYPE_CHECKING:
    import click

    from plughost import PluginContext

DESCRIPTION: Final = "/q/openapi"
SWAGGER_UI: Final = "/q/swagger-ui"

# YAML is another notation of the same object (OpenAPI 3.1, "Format").
_EXAMPLE: Final = {"openapi": "3.1.0", "info": {"title": "plughost: main", "version": "0.1.0"}, "paths": {}}
_DOCUMENT: Final = {
    "type": "object",
    "required": ["openapi", "info", "paths"],
    "properties": {
        "openapi": {"type": "string", "const": OPENAPI},
        "info": {"type": "object"},
        "paths": {"type": "object"},
    },
    "additionalProperties": True,
}
_ETAG: Final = {"ETag": "Identifies the body, for If-None-Match.", "Cache-Control": "Always `no-cache`."}

_DESCRIBE: Final = Operation(
    id="getDescription",
    summary="Describe the API",
    description="The OpenAPI 3.1 description of everything that is mounted on a site.",
    responses={
        200: Response(
            description="The description.", schema=_DOCUMENT, media_types=OFFERS, headers=_ETAG, example=_EXAMPLE
        ),
        206: Response(
            description="The part that `Range` asks for.",
            schema={},
            media_types=OFFERS,
            headers=_ETAG,
            example=_EXAMPLE,
        ),
        304: Response(description="The client's copy is current.", headers=_ETAG),
        400: Response(description="The format is unknown."),
        404: Response(description="Nothing is mounted on this site."),
        412: Response(description="No tag of `If-Match` matches."),
        416: Response(description="`Range` begins beyond the end."),
    },
    produces=OFFERS,
    parameters=(
        Parameter(name="site", place="query", description="The site; by default this one.", allow_empty=True),
        Parameter(
            name="format",
            place="query",
            description="The format; it overrides `Accept`.",
            schema={"type": "string", "enum": ["yaml", "json"]},
            allow_empty=True,
        ),
        Parameter(
            name="If-None-Match",
            place="header",
            description="ETags that the client has; if one matches, the response is 304.",
        ),
    ),
)


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model that validates `[plugins.openapi]`."""
    return Settings


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the description and Swagger UI."""
    addresses = Addresses(context.host, context.plugin, context.settings.servers)
    groups = []
    if context.settings.serves_description(dev=context.dev):
        route = Route("", Description(addresses, context.settings.about), {"GET": _DESCRIBE})
        groups.append(RouteGroup(prefix=DESCRIPTION, routes=(route,), title="API description"))
    if context.settings.serves_swagger_ui(dev=context.dev):
        names = sorted(each.name for each in FOLDER.iterdir() if each.suffix != ".html")
        name = Parameter(name="name", place="path", description="", schema={"enum": names}, refusal=404)
        page = Operation(summary="Show Swagger UI", produces=("text/html",))
        asset = Operation(summary="Get a file of Swagger UI", parameters=(name,), produces=())
        routes = (Route("", SwaggerUI(addresses), {"GET": page}), Route("/{name}", Asset(), {"GET": asset}))
        groups.append(RouteGroup(prefix=SWAGGER_UI, routes=routes, title="Swagger UI", described=False))
    return groups


@hookimpl
def register_middleware(context: PluginContext[Settings]) -> list[Middleware]:
    """Allow the page to call the host's other listeners."""
    if not context.settings.serves_swagger_ui(dev=context.dev):
        return []
    component = TryItOut(Addresses(context.host, context.plugin, context.settings.servers))
    return [Middleware(name="swagger-ui", component=component, scope="host", vary=("Origin",))]


@hookimpl
def register_commands() -> list[click.Command]:
    """Add the command `plughost openapi`."""
    from plughost_openapi.commands import openapi_command  # noqa: PLC0415 - a host that serves runs no commands

    return [openapi_command]
