"""The plugin `greeting`: its settings, its resources, and the hooks that hand both to the host."""

from typing import Annotated

import falcon
from pydantic import BaseModel, Field

from plughost import Operation, PluginContext, Response, Route, RouteGroup, hookimpl
from plughost.http import Request, Text, read_body


class Settings(BaseModel):
    """The table `[plugins.greeting]`."""

    word: str = Field("Hello", min_length=1, description="What greetings begin with")


class Person(BaseModel):
    """Whom to greet: the body of a POST."""

    name: Annotated[str, Text(max_length=100)]


class Greeting(BaseModel):
    """A greeting: the body of every successful answer."""

    text: str


class Greetings:
    """Greets whoever the body or the path names."""

    def __init__(self, word: str) -> None:
        """Take the word that greetings begin with."""
        self._word = word

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Greet the person in the body."""
        self._greet(resp, read_body(req, Person).name)

    def on_get_by_name(self, req: Request, resp: falcon.Response, name: str) -> None:
        """Greet the person in the path."""
        self._greet(resp, name)

    def _greet(self, resp: falcon.Response, name: str) -> None:
        resp.media = {"text": f"{self._word}, {name}!"}


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model of `[plugins.greeting]`."""
    return Settings


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount `/greetings`."""
    greetings = Greetings(context.settings.word)
    greeted = {200: Response(description="The greeting.", model=Greeting)}
    by_body = Operation(summary="Greet somebody", request=Person, responses=greeted)
    by_name = Operation(summary="Greet somebody by name", responses=greeted)
    routes = (
        Route("", greetings, {"POST": by_body}),
        Route("/{name}", greetings, {"GET": by_name}, suffix="by_name"),
    )
    return [RouteGroup(prefix="/greetings", routes=routes, versions=("1.0",))]
