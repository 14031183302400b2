"""A host that describes itself and a third-party plugin for notes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest
from pydantic import BaseModel

import plughost_openapi.plugin
from plughost import Middleware, Operation, Parameter, Response, Route, RouteGroup, Store, hookimpl
from plughost.http import Integer, Number, Text
from plughost.ratelimits import RateLimit
from plughost.stores import idempotency_store
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import falcon
    import httpx

    from plughost import PluginContext
    from plughost.http import Problem


_NUMBER = {"type": "integer", "maximum": 2**63 - 1, "examples": [7]}


class NoteDraft(BaseModel):
    """A note to take.

    Attributes:
        text: What to remember,
            in your own words.
        weight: How much it matters.
    """

    text: Annotated[str, Text(max_length=40)]
    weight: Annotated[int, Integer(minimum=0, maximum=2**40)]
    price: Annotated[float, Number(minimum=0, integer_digits=3, fraction_digits=2)]


class Note(NoteDraft):
    """A note."""

    id: int


class Linked(BaseModel):
    """A note in HAL."""

    links: dict[str, str]


@dataclass(frozen=True)
class Shout:
    """An error format without a schema."""

    media_type: str = "application/vnd.shout+json"
    validation_status: int = 422

    def render(self, problem: Problem) -> bytes:
        """Return the problem in capital letters."""
        return msgspec.json.encode({"oh": problem.detail.upper()})


def _resource(*methods: str) -> object:
    """Return a resource with these methods; nobody calls them."""

    def answer(self: object, req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
        """Return nothing."""

    return type("Resource", (), {f"on_{method.lower()}": answer for method in methods})()


class Plugin:
    """A plugin with every kind of declaration."""

    @hookimpl
    def register_stores(self) -> list[Store]:
        """Store answers for idempotent operations."""
        return [idempotency_store("notes")]

    @hookimpl
    def register_middleware(self, context: PluginContext[Any]) -> list[Middleware]:
        """Limit requests."""
        return [Middleware(name="notes-limit", component=RateLimit(context, "1000/minute"))]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount all routes."""
        page = Parameter(name="page", place="query", description="Which.", schema={"type": "integer", "minimum": 0})
        number = Parameter(name="id", place="path", description="Its number.", schema=_NUMBER)
        found = {"application/json": Note, "application/hal+json": Linked}
        everything: Mapping[str, Operation] = {
            "GET": Operation(
                summary="List notes",
                responses={200: Response(description="All.", model=list[Note])},
                parameters=(page,),
            ),
            "POST": Operation(
                summary="Take a note",
                request=NoteDraft,
                responses={
                    201: Response(description="It.", model=Note, headers={"Location": "Where."}),
                    409: Response(description="There already."),
                },
                security=("basic", "bearer"),
                examples={"a thought": {"text": "1e3", "weight": 1, "price": 9.99}},
            ),
        }
        one = {
            "GET": Operation(
                summary="Get a note",
                responses={
                    200: Response(description="It.", model=found),
                    404: Response(description="No.", media_types=()),
                },
                produces=tuple(found),
                parameters=(number,),
            ),
            "DELETE": Operation(summary="Tear it up", responses={204: Response(description="Gone.")}),
        }
        routes = (Route("", _resource(*everything), everything), Route("/{id}", _resource(*one), one))
        put = Operation(summary="Put", idempotent=True, sunset=date(2031, 1, 1), successor="/notes")
        other = Route("/{when:int}/x-{rest}", _resource("PUT"), {"PUT": put})
        return [
            RouteGroup(prefix="/notes", site="library", routes=routes, versions=("1.0", "1.1"), title="Notes"),
            RouteGroup(prefix="/shouts", site="library", routes=(other,), errors=Shout(), deprecated=date(2030, 1, 1)),
        ]


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host in development mode, with the notes on the site `library`."""
    plugins = [plugin_distribution("openapi", plughost_openapi.plugin), plugin_distribution("notes", Plugin())]
    with running_host(distributions=plugins, strict=True) as running:
        yield running


@pytest.fixture
def client(host: RunningHost) -> Iterator[httpx.Client]:
    """A client of the site that serves the description."""
    with host.client() as opened:
        yield opened


@pytest.fixture
def library(client: httpx.Client) -> dict[str, Any]:
    """The description of the site `library`."""
    found: dict[str, Any] = client.get("/q/openapi?site=library&format=json").json()
    return found
