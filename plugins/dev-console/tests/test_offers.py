"""The console shows a working command for each operation."""

from __future__ import annotations

import json
import re
import shlex
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from plughost import Operation, Parameter, PluginContext, Route, RouteGroup, hookimpl
from plughost_dev_console.offers import Offer, offers

if TYPE_CHECKING:
    from .conftest import Start


class Sale(BaseModel):
    """A body without examples."""

    item: str
    price: Decimal = Field(examples=[1.5])
    note: str | None = None


class Desk:
    """A plugin with all kinds of operations."""

    def on_get(self, req: object, resp: object, **fields: str) -> None:
        """Answer."""

    on_post = on_put = on_get

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount them."""
        name = Parameter(name="name", place="path", description="", schema={"type": "string", "examples": ["a b/c"]})
        quoted = {"it's": {"item": "it's"}}
        routes = (
            Route("", self, {
                "GET": Operation(summary="", security=("bearer",)),
                "POST": Operation(summary="", request=Sale),
                "PUT": Operation(summary=""),
            }),
            Route("/{name}", self, {
                "GET": Operation(summary="", parameters=(name,), security=("basic",)),
                "POST": Operation(summary="", request=Sale, examples=quoted),
                "PUT": Operation(summary=""),
            }),
        )  # fmt: skip
        return [RouteGroup(prefix="/desk", routes=routes)]


def _offers(start: Start, **options: Any) -> dict[tuple[str, str], Offer]:
    with start(desk=Desk, **options) as console:
        view = console.host.host.view
        plugin = next(each for each in view.plugins if each.name == "desk")
        return {(each.method, each.path): each for each in offers(view, plugin, "localhost")}


def test_commands_are_quoted_for_the_shell(start: Start) -> None:
    """Bodies and paths arrive unchanged, whatever they contain."""
    found = _offers(start)
    plain = {key: re.sub(r":\d+", "", each.command) for key, each in found.items()}
    assert plain["GET", "/desk"] == 'curl http://localhost/desk -H "Authorization: Bearer $TOKEN"'
    assert plain["PUT", "/desk"] == "curl -X PUT http://localhost/desk"
    assert plain["GET", "/desk/{name}"] == "curl http://localhost/desk/a%20b%2Fc -u EMAIL:PASSWORD"
    body = shlex.split(found["POST", "/desk"].command)[-1]
    assert json.loads(body) == {"item": "text", "price": 1.5}
    assert json.loads(shlex.split(found["POST", "/desk/{name}"].command)[-1]) == {"item": "it's"}


def test_only_simple_operations_are_links(start: Start) -> None:
    """An operation that needs a field, a body or credentials has no link."""
    assert [each.link for each in _offers(start).values()] == [""] * 6


def test_an_operations_requirements_are_shown(start: Start) -> None:
    """They come from its own declaration, or from its site, whose role every operation needs."""
    offered = _offers(start)
    wanted = [offered[each].access for each in (("GET", "/desk"), ("PUT", "/desk"), ("GET", "/desk/{name}"))]
    assert wanted == ["a token", "", "e-mail and password"]
    admin = {"http_port": 0, "https_port": 0, "required_role": "keeper"}
    offered = _offers(start, _settings={"plugins": {"desk": {"site": "admin"}}, "sites": {"admin": admin}})
    assert {each.access for each in offered.values()} == {"a token with the role keeper"}
    assert "Authorization: Bearer $TOKEN" in offered["PUT", "/desk"].command
