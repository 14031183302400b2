"""The host finds conflicts between plugins before anything starts, and names both plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from http.client import HTTPConnection
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import urlsplit

import pytest
from pydantic import create_model
from tests.host.plugins import Plugin, Says, Speaker, group_of, reason, serving

from plughost import Check, Health, Middleware, Operation, Page, Response, Route, RouteGroup, Store
from plughost.http import PLAIN_TEXT
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

MIGRATIONS = resources.files(__package__ or "tests.host")


class Named(Says):
    """Accepts any fields of a path."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, **fields: str) -> None:
        """Answer with the fields."""
        resp.media = {"word": self.word, **fields}


class Passes:
    """Middleware that does nothing."""

    def process_response(self, req: Any, resp: Any, resource: Any, req_succeeded: bool) -> None:
        """Do nothing."""


def store(name: str, *tables: str) -> Plugin:
    """Return a plugin with a store."""
    declared = Store(name=name, entities=lambda database: database, migrations=MIGRATIONS, tables=tables)
    return Plugin(register_stores=lambda context: [declared])


def middleware(name: str, **options: Any) -> Plugin:
    """Return a plugin with middleware."""
    return Plugin(register_middleware=lambda context: [Middleware(name=name, component=Passes(), **options)])


def checks(name: str) -> Plugin:
    """Return a plugin with a health check."""
    return Plugin(register_checks=lambda context: [Check(name=name, check=lambda: Health(up=True))])


def authenticator() -> Plugin:
    """Return a plugin with an authenticator."""
    return Plugin(register_authenticator=lambda context: lambda request: None)


FALCON = (
    "route /y/z/{b}/x can't stand beside route /y/z/{a}: a field at the same place of both needs the same name and "
    "converter; the other route belongs to a-first (plughost-a-first 1.0). Give one of the two another prefix"
)
CONFLICTS: dict[str, tuple[Plugin | Speaker, Plugin | Speaker, str]] = {
    "prefix": (Speaker("a"), Speaker("b"), "the prefix /say on site main belongs to"),
    "template": (
        serving(Named("a"), "/y", "/{a}"),
        serving(Named("b"), "/y", "/{b}"),
        "the prefix /y on site main belongs to",
    ),
    "nested template": (serving(Named("a"), "/y", "/z/{a}"), serving(Named("b"), "/y/z", "/{a}"), "/y/z/{}"),
    "falcon": (serving(Named("a"), "/y", "/z/{a}"), serving(Named("b"), "/y/z", "/{b}/x"), FALCON),
    "store": (store("one", "a"), store("one", "b"), "the store one belongs to"),
    "store's key": (store("a-b", "a"), store("a_b", "b"), "the setting stores.urls.a_b of stores that"),
    "table": (store("one", "products"), store("two", "Products"), "the table products belongs to"),
    "middleware": (middleware("m"), middleware("m"), "the middleware m belongs to"),
    "check": (checks("c"), checks("c"), "the health check c belongs to"),
    "authenticator": (authenticator(), authenticator(), "is the authenticator already"),
}


@pytest.mark.parametrize("what", CONFLICTS)
def test_the_second_claim_fails_and_names_the_first(what: str) -> None:
    """The later plugin fails with a conflict that names the earlier one; the earlier one and all others serve."""
    first, second, message = CONFLICTS[what]
    installed = [
        plugin_distribution("a-first", first),
        plugin_distribution("b-second", second),
        plugin_distribution("c-other", Speaker("c", "/c")),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/c").status_code == 200
        failure = reason(host, "b-second")
        assert failure.startswith("failed: conflict: ")
        assert all(each in failure for each in ("a-first (plughost-a-first 1.0)", message))
        assert ("another prefix" in failure) == (what in ("prefix", "template", "nested template", "falcon"))
        if what not in ("store", "store's key", "table"):  # which have no migrations here
            assert reason(host, "a-first") == "active: None"


def test_a_dependent_loses_to_its_requirement() -> None:
    """A plugin keeps its claim against a plugin that requires it but sorts first; the latter is blocked."""
    installed = [
        plugin_distribution("a", Speaker("a"), requires=["plughost-b"]),
        plugin_distribution("b", Speaker("b")),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/say").json()["word"] == "b"
        assert "belongs to b (plughost-b 1.0)" in reason(host, "a")


def test_a_prefix_below_another_prefix_is_no_conflict() -> None:
    """The longer prefix answers every path below it, unknown ones too; the shorter prefix answers the rest."""
    installed = [
        plugin_distribution("a", Plugin(register_routes=lambda context: [group_of(Named("a"), "/say", "/{word}")])),
        plugin_distribution("b", tracing("/say/more", trace("b"))),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/say/it").json() == {"word": "it"}
        responses = {path: client.get(path) for path in ("/say/more", "/say/more/x")}
    assert {path: answer.status_code for path, answer in responses.items()} == {"/say/more": 200, "/say/more/x": 404}
    assert {answer.headers["x-out"] for answer in responses.values()} == {"b"}


@pytest.mark.parametrize(
    "plugin",
    [
        Plugin(register_routes=lambda context: [group_of(Says("x")), group_of(Says("y"))]),
        Plugin(register_routes=lambda context: [group_of(Named("x"), "/y", "/{a}"), group_of(Named("x"), "/y/{", "")]),
        Plugin(
            register_routes=lambda context: [group_of(Named(""), "/y", "/z/{a}"), group_of(Named(""), "/y/z", "/{b}/c")]
        ),
        Plugin(register_pages=lambda context: [Page(name="p", title="P", render=str)] * 2),
    ],
)
def test_a_plugin_can_conflict_with_itself(plugin: Plugin) -> None:
    """A plugin that claims something twice fails."""
    installed = [plugin_distribution("a", plugin), plugin_distribution("b", Speaker("b", "/b"))]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/b").status_code == 200
        assert reason(host, "a").startswith(("failed: conflict: ", "failed: register_routes: "))


class Async:
    """A resource for ASGI servers."""

    async def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""


class Yields:
    """A resource whose responder is a generator."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> Iterator[bytes]:
        """Run nothing of this."""
        yield b""


class Sockets:
    """A resource for WebSockets."""

    async def on_websocket(self, req: falcon.Request, ws: object) -> None:
        """Do nothing."""


class Unsupported:
    """A value that JSON can't represent."""


def describing(**declared: Any) -> RouteGroup:
    """Return a group whose operation has the given declarations."""
    operations = {"GET": Operation(summary="Say it", **declared)}
    return RouteGroup(prefix="/say", routes=(Route("", Says("x"), operations),))


UNMOUNTABLE: list[tuple[Any, str]] = [
    (lambda: group_of(Says("x"), "say"), "a prefix is one or more segments"),
    (lambda: group_of(Says("x"), "/say/"), "a prefix is one or more segments"),
    (lambda: group_of(Says("x"), "/", "/a"), "a prefix is one or more segments"),
    (lambda: group_of(Says("x"), "/{say}"), "a prefix is one or more segments"),
    (lambda: group_of(Says("x"), "//say"), "a prefix is one or more segments"),
    (lambda: group_of(Says("x"), versions=("1",)), "'1' is not a minor version"),
    (lambda: group_of(Says("x"), path="{a}"), "a path is empty, or segments"),
    (lambda: group_of(Says("x"), path="/a/"), "a path is empty, or segments"),
    (lambda: group_of(Says("x"), site="moon"), "there is no site 'moon'; sites are main, library"),
    (lambda: group_of(Says), "the resource is a class"),
    (lambda: group_of(Async()), "on_get of Async is async"),
    (lambda: group_of(Async()), "in threads without an event loop: use plain def"),
    (lambda: group_of(Yields()), "on_get of Yields contains yield"),
    (lambda: group_of(Sockets()), "Sockets has on_websocket, and plughost serves no WebSockets: send to pages with"),
    (lambda: group_of(Says("x"), body_limit=-1), "body_limit -1"),
    (lambda: describing(body_limit=0), "GET: body_limit 0 is no size"),
    (lambda: describing(consumes="text/csv"), "GET: consumes must be tuple[str, ...], not 'text/csv'"),
    (lambda: describing(deprecated="now"), "GET: deprecated must be date | None, not 'now'"),
    (lambda: describing(sunset=datetime(2027, 1, 1)), "has no zone"),
    (lambda: describing(deprecated=date(2027, 1, 2), sunset=date(2027, 1, 1)), "is before 2027-01-02"),
    (lambda: group_of(Says("x"), successor="</a>"), "its successor '</a>' is no URL or path"),
    (
        lambda: describing(responses={200: Response(description="It.", model=list[Unsupported])}),
        "GET: the model list of the response 200 can't be described: Unable to generate pydantic-core schema for",
    ),
    (
        lambda: describing(responses={200: Response(description="It.", model=list[Unsupported])}),
        "Unsupported'>; give the field another type, or the response a schema",
    ),
    (
        lambda: describing(request=create_model("Sent", call=(Callable[[int], int], ...))),
        "GET: the model Sent of the request can't be described: call: Cannot generate a JsonSchema",
    ),
]


@pytest.mark.parametrize(("declare", "message"), UNMOUNTABLE)
def test_a_group_that_cannot_be_mounted_fails_with_the_reason(declare: Any, message: str) -> None:
    """The failure of `register_routes` names the group and what is wrong with it."""
    plugin = Plugin(register_routes=lambda context: [declare()])
    with running_host(distributions=[plugin_distribution("bad", plugin)]) as host:
        failure = reason(host, "bad")
    assert failure.startswith("failed: register_routes: route group '")
    assert message in failure


class Traces:
    """Middleware that adds its name to every response, in the order in which it ran."""

    def __init__(self, name: str, *, fails: str = "") -> None:
        """Store the name."""
        self.name = name
        self.fails = fails

    def process_resource(self, req: Any, resp: Any, resource: Any, params: Any) -> None:
        """Record the request."""
        resp.append_header("X-In", self.name)
        if self.fails == "in":
            raise ValueError("internal secret")

    def process_response(self, req: Any, resp: Any, resource: Any, req_succeeded: bool) -> None:
        """Record the response."""
        resp.append_header("X-Out", self.name)
        if self.fails == "out":
            raise ValueError("internal secret")


Scope = Literal["plugin", "site", "host"]


def tracing(prefix: str, *declared: Middleware, **options: Any) -> Plugin:
    """Return a plugin with a route and middleware."""
    return Plugin(
        register_routes=lambda context: [group_of(Says("x"), prefix, **options)],
        register_middleware=lambda context: list(declared),
    )


def trace(name: str, scope: Scope = "plugin", *, fails: str = "", **options: Any) -> Middleware:
    """Return middleware that adds its name."""
    return Middleware(name=name, component=Traces(name, fails=fails), scope=scope, **options)


def test_middleware_is_ordered_by_before_and_after() -> None:
    """`before` puts middleware outside of another, `after` inside; names that don't exist are ignored."""
    plugin = tracing(
        "/say", trace("a", after=("b", "ghost")), trace("b", before=("a",), after=("c",)), trace("c", before=("ghost",))
    )
    with running_host(distributions=[plugin_distribution("traced", plugin)]) as host, host.client() as client:
        answer = client.get("/say")
    assert (answer.headers["x-in"], answer.headers["x-out"]) == ("c, b, a", "a, b, c")


def test_a_cycle_of_middleware_fails_one_of_its_plugins() -> None:
    """The failure lists the names of the cycle in order; the rest of the middleware stays in force."""
    installed = [
        plugin_distribution("a", tracing("/a", trace("one", before=("two",)))),
        plugin_distribution("b", tracing("/b", trace("two", before=("three",)))),
        plugin_distribution("c", tracing("/c", trace("three", before=("one",)))),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/a").headers["x-in"] == "one"
        assert client.get("/c").status_code == 404
        failure = reason(host, "c")
    circle = failure.removeprefix("failed: register_middleware: middleware order is a circle: ")
    assert circle.removesuffix(". Disable one of these plugins.") in {
        "one before two before three before one",
        "two before three before one before two",
        "three before one before two before three",
    }


def test_middleware_runs_where_its_scope_says() -> None:
    """Scope `plugin` covers the plugin's own prefixes, `site` one site, and `host` every site."""
    installed = [
        plugin_distribution("a", tracing("/a", trace("mine"), trace("ours", "site"), trace("all", "host"))),
        plugin_distribution("b", tracing("/b")),
        plugin_distribution("c", tracing("/c", site="library")),
    ]
    with running_host(distributions=installed) as host:
        with host.client() as client:
            traces = {path: client.get(path).headers.get("x-out", "") for path in ("/a", "/a/x", "/b", "/b/x", "/x")}
        with host.client("library") as client:
            traces["/c"] = client.get("/c").headers.get("x-out", "")
    assert {path: set(names.split(", ")) for path, names in traces.items()} == {
        "/a": {"mine", "ours", "all"},
        "/a/x": {"mine", "ours", "all"},
        "/b": {"ours", "all"},
        "/b/x": {"ours", "all"},
        "/x": {"ours", "all"},
        "/c": {"all"},
    }


class Answers:
    """Middleware that answers every request itself, with the names of the methods that ran before and after it."""

    ran: ClassVar[list[str]] = []

    def __init__(self, name: str, *, completes: bool) -> None:
        """Store the name, and whether it answers."""
        self.name = name
        self.completes = completes

    def process_request(self, req: Any, resp: Any) -> None:
        """Answer."""
        self.ran.append(f"{self.name} request")
        resp.complete = self.completes

    def process_resource(self, req: Any, resp: Any, resource: Any, params: Any) -> None:
        """Record the call."""
        self.ran.append(f"{self.name} resource")

    def process_response(self, req: Any, resp: Any, resource: Any, req_succeeded: bool) -> None:
        """Record the call."""
        self.ran.append(f"{self.name} response to {resource}")


def test_middleware_that_answers_skips_the_inner_request_methods() -> None:
    """After `resp.complete` no more request methods run; response methods run, except those of a plugin's own scope."""
    declared = [
        Middleware(name="inner", component=Answers("inner", completes=False), scope="site", after=("outer",)),
        Middleware(name="outer", component=Answers("outer", completes=True), scope="site"),
        trace("mine"),
    ]
    Answers.ran.clear()
    installed = [plugin_distribution("a", tracing("/a", *declared))]
    with running_host(distributions=installed) as host, host.client() as client:
        answer = client.get("/a")
    assert (answer.content, answer.headers.get("x-out")) == (b"", None)
    assert Answers.ran == ["outer request", "inner response to None", "outer response to None"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"method": "GET", "url": "/a/x"}, 404),
        ({"method": "DELETE", "url": "/a"}, 405),
        ({"method": "GET", "url": "/a", "headers": {"Accept": "text/html"}}, 406),
        ({"method": "GET", "url": "/a", "content": b"x" * 200}, 413),
        ({"method": "GET", "url": "/a", "headers": {"API-Version": "9"}}, 400),
        ({"method": "OPTIONS", "url": "/a"}, 200),
    ],
)
def test_a_plugins_middleware_sees_every_response_of_its_prefix(request_: dict[str, Any], status: int) -> None:
    """`process_response` also runs for answers that the host makes below the plugin's prefix."""
    plugin = tracing("/a", trace("mine"), versions=("1.0",), body_limit=100)
    with running_host(distributions=[plugin_distribution("a", plugin)]) as host, host.client() as client:
        answer = client.request(**request_)
    assert (answer.status_code, answer.headers.get("x-out")) == (status, "mine")


@pytest.mark.parametrize("fails", ["in", "out"])
@pytest.mark.parametrize("scope", ["plugin", "site", "host"])
def test_a_middleware_that_raises_is_500_with_the_common_headers(scope: Scope, fails: str) -> None:
    """An exception in middleware of any scope, before or after the resource, reveals nothing and keeps every header."""
    plugin = tracing("/a", trace("mine", scope, fails=fails), versions=("1.0",))
    with running_host(distributions=[plugin_distribution("a", plugin)]) as host, host.client() as client:
        answer = client.get("/a", headers={"X-Request-ID": "find-me"})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.headers["x-request-id"] == "find-me"
    assert answer.headers["x-content-type-options"] == "nosniff"
    chosen = scope == "plugin" or fails == "out"  # middleware of a site runs before the group's version is chosen
    assert answer.headers.get("api-version") == ("1.0" if chosen else None)
    assert "secret" not in answer.text


def test_a_group_at_the_root_owns_only_the_root() -> None:
    """A path that begins with two slashes belongs to no plugin: it is 404 in the host's own format, not that of `/`."""
    front = Plugin(register_routes=lambda context: [group_of(Says("front"), "/", errors=PLAIN_TEXT)])
    with running_host(distributions=[plugin_distribution("front", front)]) as host:
        connection = HTTPConnection("127.0.0.1", urlsplit(host.url()).port or 80, timeout=30)
        for path, status in (("/", 200), ("//say", 404), ("//say/x", 404), ("///", 404), ("/say", 404)):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            expected = "application/json" if status == 200 else "application/problem+json"
            assert (path, answer.status, answer.headers["Content-Type"]) == (path, status, expected)
        connection.close()
