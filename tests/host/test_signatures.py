"""A route is refused at mount if its declarations and its responders' signatures don't match."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from tests.host.plugins import Plugin as Small
from tests.host.plugins import Says, group_of, reason

from plughost import Operation, Parameter, Route, RouteGroup, hookimpl
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Callable

    import falcon

    from plughost import PluginContext

PAGE = Parameter(name="page", place="query", description="Which.", schema={"type": "integer"})


class Plugin:
    """Mounts one resource."""

    def __init__(self, responder: Callable[..., object], path: str, operation: Operation) -> None:
        """Create a resource with the given responder."""
        self._route = Route(path, type("Item", (), {"on_get": responder})(), {"GET": operation})

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/items", routes=(self._route,))]


def mounted(responder: Callable[..., object], path: str = "/{sku}", *parameters: Parameter, **options: Any) -> str:
    """Return why a host doesn't serve a route; empty if it does."""
    plugin = Plugin(responder, path, Operation(summary="Get", parameters=parameters, **options))
    with running_host(distributions=[plugin_distribution("items", plugin)]) as host:
        assert host.host.generation is not None
        failure = next(iter(host.host.generation.registry)).failure
        return str(failure or "")


def lacks(self: Any, req: Any, resp: Any) -> None:
    """Take no field."""


def on_get(self: Any, req: Any, resp: Any, sku: str) -> None:
    """Take the field."""


def takes_more(self: Any, req: Any, resp: Any, sku: str, colour: str) -> None:
    """Take an argument that nobody passes."""


def takes_page(self: Any, req: Any, resp: Any, sku: str, *, page: int) -> None:
    """Take a parameter."""


def takes_default(self: Any, req: Any, resp: Any, sku: str, colour: str = "") -> None:
    """Take an optional argument."""


def takes_all(self: Any, req: Any, resp: Any, **values: Any) -> None:
    """Take any arguments."""


def takes_nothing(self: Any) -> None:
    """Take not even a request."""


def positional(self: Any, req: Any, resp: Any, sku: str, /) -> None:
    """Take the field by position only."""


@functools.wraps(takes_more)
def decorated(self: Any, req: Any, resp: Any, **values: Any) -> None:
    """Add an argument, as a hook of Falcon may."""


def takes_product(self: Any, req: Any, resp: Any, product: Any) -> None:
    """Take what a decorator finds by the path's field."""


@functools.wraps(takes_product)
def converting(self: Any, req: Any, resp: Any, sku: str) -> None:
    """Replace the field by another argument."""


def declared(name: str, place: Any = "query", **schema: Any) -> Parameter:
    """Return a declared parameter."""
    return Parameter(name=name, place=place, description="It.", schema=schema)


@pytest.mark.parametrize(
    ("responder", "parameters"),
    [(on_get, ()), (takes_page, (PAGE,)), (takes_default, ()), (takes_all, (PAGE,)), (decorated, ()), (converting, ())],
)
def test_matching_signatures_are_mounted(responder: Callable[..., object], parameters: tuple[Parameter, ...]) -> None:
    """Fields, declared parameters, defaults, `**values` and arguments that decorators add or replace are accepted."""
    assert mounted(responder, "/{sku}", *parameters) == ""


@pytest.mark.parametrize("path", ["/it's", "/{sku\n}", "/{sku:dt('%Y/%m')}", "/{sku:dt('%Y'}", "/o'/{sku}"])
def test_a_path_that_is_no_code_for_falcons_router_is_refused(path: str) -> None:
    """Falcon would write it into the code of the site's router, and no plugin would be served."""
    assert "an apostrophe needs a field" in mounted(takes_all, path)


def test_a_path_too_deep_for_falcons_router_is_refused() -> None:
    """Python could not compile the router, and no plugin would be served."""
    deepest = "/x{sku}y" + "/a" * 38  # below the prefix
    assert mounted(on_get, deepest) == ""
    for deeper in (f"{deepest}/a", deepest.replace("{sku}", "{sku:int}")):
        assert "a route has 41 segments and converters; 40 are the most" in mounted(on_get, deeper)
    converters = "/x{sku:int}" + "".join(f"/x{{f{number}:int}}" for number in range(33))
    assert "40 are the most" in mounted(takes_all, converters)


def test_an_apostrophe_beside_a_field_is_mounted() -> None:
    """Falcon matches such a segment by a pattern."""
    assert mounted(on_get, "/by('{sku}')") == ""


def test_annotations_may_have_names_for_type_checkers_only() -> None:
    """Python evaluates no annotation unless it is asked to: from 3.14 on without an import from `__future__`, too."""
    head = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    source = f"{head}def on_get(self, req: Missing, resp: Missing, sku: Missing) -> Missing: ..."
    names: dict[str, Any] = {}
    exec(compile(source, "it", "exec", dont_inherit=True), names)
    assert mounted(names["on_get"], "/{sku}", PAGE) == ""


@pytest.mark.parametrize(
    ("responder", "parameters", "reason"),
    [
        (lacks, (), "lacks of Item: it lacks the argument 'sku', a field of the path: write (self, req, resp, sku)"),
        (takes_more, (), "takes_more of Item: its argument 'colour' is neither a field of the path nor a declared"),
        (takes_page, (), "its argument 'page' is neither a field of the path nor a declared parameter: declare it"),
        (takes_nothing, (), "it is called with a request and a response: write (self, req, resp)"),
        (positional, (), "it lacks the argument 'sku', a field of the path"),
        (on_get, (declared("isbn", "path"),), "it declares the path parameter 'isbn', which the path lacks"),
        (on_get, (declared("sku"),), "two of its parameters would be the argument 'sku'"),
        (on_get, (declared("a-b"), declared("a_b")), "two of its parameters would be the argument 'a_b'"),
        (on_get, (declared("a", "cookie"),), "parameter 'a': place must be Literal['path', 'query', 'header'], not"),
        (on_get, (declared("a", type="object"),), "the type 'object' is none of string, integer, number, boolean"),
        (on_get, (declared("a", type="integer", multipleOf=5),), "multipleOf is not enforced for the type integer"),
        (on_get, (declared("a", type="integer", default="x"),), "'x', which its schema names, must be an integer"),
        (on_get, (declared("a", type="integer", maximum=5, examples=[6]),), "6, which its schema names, must be less"),
        (on_get, (declared("a", type="array"),), "an array has items"),
        (on_get, (declared("a", format="email"),), "the format 'email' is none of date, date-time, uuid"),
        (on_get, (declared("a", type="integer", format="int64"),), "format is not enforced for the type integer"),
    ],
)
def test_a_mismatch_is_refused(
    responder: Callable[..., object], parameters: tuple[Parameter, ...], reason: str
) -> None:
    """The plugin fails; the reason names the hook, prefix, route and responder, and says what to do."""
    said = mounted(responder, "/{sku}", *parameters)
    assert said.startswith("register_routes: route group '/items': route '/{sku}': ")
    assert reason in said


def test_roles_need_the_scheme_bearer() -> None:
    """Roles belong to a principal, and only this scheme has one."""
    assert "it declares roles" in mounted(on_get, security=("basic",), roles=("admin",))


class Returns:
    """Returns a value that it should have set."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> dict[str, int]:
        """Return it."""
        return {"a": 1}


class Misspells:
    """Sets an attribute that Falcon doesn't have."""

    def on_get(self, req: falcon.Request, resp: Any) -> None:
        """Set it."""
        resp.meda = {"a": 1}


class Keeps:
    """Sets an attribute of its own."""

    def on_get(self, req: falcon.Request, resp: Any) -> None:
        """Set it."""
        resp.mine = 1


RETURNED = "Returns.on_get returned a dict, which Falcon ignores: set resp.media (or resp.text, resp.data), and return"


@pytest.mark.parametrize("dev", [True, False])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Returns, RETURNED),
        (Misspells, "Misspells.on_get set resp.meda, which Falcon ignores: did you mean resp.media?"),
        (Keeps, "Keeps.on_get set resp.mine, which Falcon ignores: keep what is yours in resp.context"),
    ],
)
def test_mistakes_that_falcon_ignores_are_found_in_development(dev: bool, wrong: type[Any], said: str) -> None:
    """With `--dev` the answer is 500 and the log says what to do; otherwise it is Falcon's empty 200."""
    plugin = Plugin(wrong.on_get, "", Operation(summary="Get"))
    settings = {"sites": {"main": {"listeners": ["http"]}}}
    logged: list[Any] = []
    logger = _keeping(logged)
    with (
        running_host(
            distributions=[plugin_distribution("items", plugin)], dev=dev, settings=settings, logger=logger
        ) as host,
        host.client() as client,
    ):
        assert client.get("/items").status_code == (500 if dev else 200)
    errors = [str(each["exc_info"]) for each in logged if each["event"] == "unhandled exception"]
    assert [each.startswith(said) for each in errors] == [True] * dev


def _keeping(logged: list[Any]) -> Any:
    def keep(logger: object, method: str, event: Any) -> Any:
        logged.append(event)
        raise structlog.DropEvent

    return structlog.wrap_logger(structlog.ReturnLogger(), processors=[keep])


class Posts:
    """A resource with an undeclared method."""

    on_get = on_post = Says.on_get


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (["GET"], "answers POST, which the operations of the Route lack: add an Operation for each"),
        (["GET", "POST", "PUT"], "no responder for PUT"),
        (["get", "post"], "its operations have the key 'get': write methods in capitals"),
    ],
)
def test_operations_and_responders_must_match(declared: list[str], message: str) -> None:
    """The reason names the method of a responder without an operation, or of an operation without a responder."""
    group = group_of(Posts())
    operation = group.routes[0].operations["GET"]
    vars_of_route: Any = group.routes[0].operations
    vars_of_route.clear()
    vars_of_route.update(dict.fromkeys(declared, operation))
    plugin = Small(register_routes=lambda context: [group])
    with running_host(distributions=[plugin_distribution("bad", plugin)]) as host:
        assert message in reason(host, "bad")
