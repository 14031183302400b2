"""A declaration with a value of a wrong type fails its own plugin, and the reason says what to write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.host.plugins import Plugin, Says, Speaker, reason

from plughost import (
    Check,
    Health,
    Job,
    Middleware,
    Observer,
    Operation,
    Page,
    Parameter,
    Response,
    Route,
    RouteGroup,
    Store,
)
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Sized


class Looks:
    """Middleware."""

    def process_response(self, req: Any, resp: Any, resource: Any, req_succeeded: bool) -> None:
        """Do nothing."""


class LooksTwice:
    """Middleware with the arguments of another method."""

    def process_response(self, req: Any, resp: Any) -> None:
        """Do nothing."""


def endless(run: Any = None) -> Iterator[int]:
    """Yield, so that a call runs nothing."""
    yield 1


RIGHT: Final[dict[type[Any], dict[str, Any]]] = {
    Operation: {"summary": "Say it"},
    Response: {"description": "It."},
    Parameter: {"name": "word", "place": "query", "description": "It."},
    Route: {"path": "", "resource": Says("x"), "operations": {"GET": Operation(summary="Say it")}},
    RouteGroup: {"prefix": "/bad", "routes": ()},
    Store: {"name": "bad", "migrations": Path(__file__).parent, "tables": ("bad",)},
    Middleware: {"name": "bad", "component": Looks()},
    Check: {"name": "bad", "check": lambda: Health(up=True)},
    Observer: {"name": "bad", "observe": lambda records: None},
    Page: {"name": "bad", "title": "Bad", "render": str},
    Job: {"name": "bad", "run": lambda run: None, "every": 3600},
}
WRONG: Final = ("text", 5, {"a": 1}, {"200": Response(description="It.")}, (5,), object(), len)
HOOKS: Final[dict[type[Any], str]] = {
    Store: "register_stores",
    Middleware: "register_middleware",
    Check: "register_checks",
    Observer: "register_observers",
    Page: "register_pages",
    Job: "register_jobs",
}


def declaring(kind: type[Any], **changed: Any) -> Plugin:
    """Return a plugin with a declaration, some of whose values are changed."""
    declared = kind(**{**RIGHT[kind], **changed})
    if kind is Response:
        declared = Operation(summary="Say it", responses={200: declared})
    if kind is Parameter:
        declared = Operation(summary="Say it", parameters=(declared,))
    if isinstance(declared, Operation):
        declared = Route("", Says("x"), {"GET": declared})
    if isinstance(declared, Route):
        declared = RouteGroup(prefix="/bad", routes=(declared,))
    return Plugin(**{HOOKS.get(kind, "register_routes"): lambda context: [declared]})


@pytest.mark.parametrize("kind", RIGHT)
def test_no_value_of_a_wrong_type_ends_the_host(kind: type[Any]) -> None:
    """Whatever value a field of a declaration has, another plugin serves."""
    bad = [declaring(kind, **{each.name: wrong}) for each in fields(kind) for wrong in WRONG]
    installed = [plugin_distribution(f"bad-{number}", plugin) for number, plugin in enumerate(bad)]
    installed.append(plugin_distribution("good", Speaker("good", "/good")))
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/good").status_code == 200


TOLD: Final[list[tuple[type[Any], dict[str, Any], str]]] = [
    (
        Operation,
        {"responses": {"404": Response(description="None such.")}},
        "route group '/bad': route '': GET: responses must be Mapping[int, Response]",
    ),
    (Operation, {"produces": "text/csv"}, "GET: produces must be tuple[str, ...], not 'text/csv'"),
    (Operation, {"security": "bearer"}, "GET: security must be tuple[str, ...], not 'bearer'"),
    (Operation, {"security": ("Bearer",)}, "GET: write the security scheme 'Bearer' in lower case: 'bearer'"),
    (Operation, {"roles": "admin"}, "GET: roles must be tuple[str, ...], not 'admin'"),
    (Operation, {"request": {"title": str}}, "GET: request must be type[BaseModel] | None, not {"),
    (Operation, {"request": list[str]}, "GET: request must be type[BaseModel] | None, not list[str]"),
    (Operation, {"consumes": ("csv",)}, "GET: consumes 'csv', which is no media type"),
    (Operation, {"produces": ("csv",)}, "GET: produces 'csv', which is no media type"),
    (Response, {"media_types": "text/csv"}, "GET: 200: media_types must be tuple[str, ...], not 'text/csv'"),
    (Parameter, {"schema": "integer"}, "GET: parameter 'word': schema must be Mapping[str, Any], not 'integer'"),
    (Parameter, {"refusal": 422}, "GET: parameter 'word': refusal must be Literal[400, 404], not 422"),
    (Route, {"suffix": "more"}, "Says has no responder with the suffix 'more', such as on_get_more"),
    (Store, {"migrations": "migrations"}, "store 'bad': migrations is no folder, such as importlib.resources.files("),
    (Middleware, {"scope": "sites"}, "middleware 'bad': scope must be Literal['plugin', 'site', 'host'], not 'sites'"),
    (
        Check,
        {"kinds": frozenset({"readiness"})},
        "kinds must be frozenset[Literal['live', 'ready', 'started']], not frozenset({'readiness'})",
    ),
    (
        Middleware,
        {"component": LooksTwice()},
        "process_response is called with (req, resp, resource, req_succeeded), and takes (req: 'Any', resp: 'Any')",
    ),
    (Check, {"check": len}, "health check 'bad': check is called with (), and takes (obj, /)"),
    (Check, {"check": endless}, "health check 'bad': check contains yield, so a call would run nothing of it"),
    (Observer, {"observe": lambda: None}, "observer 'bad': observe is called with (requests), and takes ()"),
    (Page, {"render": lambda request: ""}, "page 'bad': render is called with (), and takes (request)"),
    (Job, {"run": endless}, "job 'bad': run contains yield"),
    (Check, {"kinds": "ready"}, "kinds must be frozenset[Literal['live', 'ready', 'started']], not 'ready'"),
    (Store, {"breaking": 2}, "store 'bad': breaking must be tuple[int, ...], not 2"),
    (Operation, {"body_limit": True}, "GET: body_limit must be int | None, not True"),
    (Job, {"every": True}, "job 'bad': every must be float | None, not True"),
]


@pytest.mark.parametrize(("kind", "changed", "message"), TOLD)
def test_a_likely_mistake_is_explained(kind: type[Any], changed: dict[str, Any], message: str) -> None:
    """The reason names the value's place, and what it has to be."""
    with running_host(distributions=[plugin_distribution("bad", declaring(kind, **changed))]) as host:
        assert message in reason(host, "bad")


@dataclass(frozen=True, kw_only=True)
class Owned(RouteGroup):
    """A route group with a field of the plugin, whose type is imported for mypy alone."""

    owner: Sized = ()


def test_the_type_of_a_plugins_own_field_is_its_own_matter() -> None:
    """A plugin may extend a declaration by fields of any type."""
    group = Owned(prefix="/owned", routes=(Route("", Says("x"), {"GET": Operation(summary="Say it")}),))
    plugin = Plugin(register_routes=lambda context: [group])
    with running_host(distributions=[plugin_distribution("own", plugin)], strict=True) as host, host.client() as client:
        assert client.get("/owned").status_code == 200
