"""The host enforces an operation's declarations about requests before it calls the resource (CONTRACT 2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import falcon
import pytest
from tests.lanes import LANES, Lane

from plughost import Operation, Parameter, Principal, Response, Route, RouteGroup, hookimpl
from plughost.http import PLAIN_TEXT, ProblemDetails, Request
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from plughost import PluginContext

Place = Literal["path", "query", "header"]


def parameter(name: str, place: Place = "query", /, **options: Any) -> Parameter:
    """Return a parameter; keywords that are no options of a parameter belong to its schema."""
    own = {key: options.pop(key) for key in ("required", "allow_empty", "refusal") if key in options}
    return Parameter(name=name, place=place, description="One.", schema=options or {"type": "string"}, **own)


ORDER = "8f14e45f-ceea-4672-a8b1-0c2d3f4e5a6b"
EVERYTHING = (
    parameter("number", "path", type="integer", minimum=1, maximum=99),
    parameter("page", type="integer", minimum=0, default=3),
    parameter("price", type="number", minimum=0.1, exclusiveMaximum=100),
    parameter("colour", type="string", enum=["red", "blue"]),
    parameter("code", type="string", minLength=2, maxLength=4, pattern="^[a-z]+$"),
    parameter("row", type="string", pattern="^[A-H]$", description="a row of {A} to {H}"),
    parameter("gift", type="boolean"),
    parameter("day", type="string", format="date", default="2026-02-28"),
    parameter("since", type="string", format="date-time"),
    parameter("order", type="array", items={"type": "string", "format": "uuid"}),
    parameter("tag", type="array", items={"type": "integer"}, allow_empty=True),
    parameter("X-Reader", "header", required=True),
    parameter("X-Sizes", "header", type="array", items={"type": "string", "enum": ["S", "M"]}),
)


class Shows:
    """Answers with the values that it received."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, **values: object) -> None:
        """Answer with each value and its type."""
        resp.media = {name: f"{type(value).__name__} {value}" for name, value in values.items()}

    def on_post(self, req: falcon.Request, resp: falcon.Response, number: str, page: int) -> None:
        """Answer with the named parameters."""
        resp.media = {"number": number, "page": page}


class Absent:
    """Its ids are numbers; 404 has no body."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, number: int) -> None:
        """Answer with the number."""
        resp.media = number


class Days:
    """Answers with a moment."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, day: datetime) -> None:
        """Answer with the day, in UTC."""
        resp.media = day.astimezone(UTC)


class Secret:
    """Answers with who asks."""

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with the principal."""
        resp.media = req.principal.name if req.principal else req.auth


class Plugin:
    """Mounts the resources, and is no authenticator."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount the resources in several formats."""
        number = parameter("number", "path", type="integer", refusal=404)
        page = parameter("page", type="integer", refusal=404)
        post = Operation(summary="Post", parameters=(parameter("page", type="integer", default=0),))
        absent = Operation(
            summary="Get", parameters=(number,), responses={404: Response(description="None.", media_types=())}
        )
        routes = (
            Route("/all/{number}", Shows(), {"GET": Operation(summary="Get", parameters=EVERYTHING), "POST": post}),
            Route("/converted/{number:int}", Absent(), {"GET": Operation(summary="Get", parameters=EVERYTHING[:1])}),
            Route("/days/{day:dt}", Days(), {"GET": Operation(summary="Get")}),
            Route("/ids/{number}", Absent(), {"GET": Operation(summary="Get", parameters=(number, page))}),
            Route("/empty/{number}", Absent(), {"GET": absent}),
            Route("/bearer", Secret(), {"GET": Operation(summary="Get", security=("bearer",))}),
            Route("/admin", Secret(), {"GET": Operation(summary="Get", security=("bearer",), roles=("admin", "root"))}),
            Route("/either", Secret(), {"GET": Operation(summary="Get", security=("basic", "bearer"))}),
        )
        return [
            RouteGroup(prefix="/problems", routes=routes, realm="shelf"),
            RouteGroup(prefix="/strict", routes=routes, errors=ProblemDetails(validation_status=422)),
            RouteGroup(prefix="/text", routes=routes, errors=PLAIN_TEXT),
        ]


BAD = {"bad": 'realm="tokens"', "quoted": r'realm="the \"tokens\""', "unquoted": "Realm = tokens"}
"""Tokens that are refused, with the realm in each form that RFC 9110 (11.4) allows."""


class Knows:
    """An authenticator: a token is the name, and `root` has the role `root`."""

    @hookimpl
    def register_authenticator(self, context: PluginContext[Any]) -> Any:
        """Return it."""

        def find(req: Request) -> Principal | None:
            scheme, _, token = (req.auth or "").partition(" ")
            if scheme.lower() != "bearer":
                return None
            if token in BAD:
                challenge = f'Bearer {BAD[token]}, error="invalid_token"'
                raise falcon.HTTPUnauthorized(description="A bad token.", challenges=[challenge])
            return Principal(token, frozenset({token}))

        return find


@pytest.fixture(scope="module")
def hosts() -> Iterator[Mapping[str, RunningHost]]:
    """A host on each engine, with an authenticator."""
    with ExitStack() as stack:
        yield {
            engine: stack.enter_context(
                running_host(
                    distributions=[plugin_distribution("all", Plugin()), plugin_distribution("knows", Knows())],
                    settings={"sites": {"main": {"http_engine": engine}}},
                    strict=True,
                )
            )
            for engine in ("waitress", "granian")
        }


@pytest.fixture(params=LANES, ids=str)
def client(request: pytest.FixtureRequest, hosts: Mapping[str, RunningHost]) -> Iterator[httpx.Client]:
    """A client on each lane, which sends the required fields."""
    lane: Lane = request.param
    with hosts[lane.engine].client(scheme=lane.scheme, http2=lane.http2) as opened:
        opened.headers["X-Reader"] = "Ann"
        yield opened


def test_values_are_converted(client: httpx.Client) -> None:
    """Each value has its type, under the parameter's name as a Python identifier."""
    query = "page=7&price=1.50&colour=red&code=abc&row=A&gift=true&tag=1&tag=-2&day=2028-02-29"
    query += f"&since=2027-01-02t03:04:05.123%2B01:00&order={ORDER.upper()}"
    answer = client.get(f"/problems/all/42?{query}", headers={"X-Sizes": "S, M"})
    assert answer.json() == {
        "number": "int 42",
        "page": "int 7",
        "price": f"Decimal {Decimal('1.50')}",
        "colour": "str red",
        "code": "str abc",
        "row": "str A",
        "gift": "bool True",
        "day": "date 2028-02-29",
        "since": "datetime 2027-01-02 03:04:05.123000+01:00",
        "order": f"tuple (UUID('{ORDER}'),)",
        "tag": "tuple (1, -2)",
        "x_reader": "str Ann",
        "x_sizes": "tuple ('S', 'M')",
    }


def test_a_value_that_falcon_converted_has_bounds_too(client: httpx.Client) -> None:
    """The schema's bounds hold for a field with a converter, and its value has the converter's type."""
    assert client.get("/problems/converted/99").json() == 99
    assert client.get("/problems/converted/100").json()["violations"] == [
        {"field": "number", "message": "must be less than or equal to 99"}
    ]


def test_a_time_in_the_path_may_be_percent_encoded(client: httpx.Client) -> None:
    """Most clients encode the colons of a time."""
    for path in ("2027-01-02T03:04:05Z", "2027-01-02T03%3A04%3A05Z", "2027-01-02T04%3A04%3A05%2B01:00"):
        assert client.get(f"/problems/days/{path}").json() == "2027-01-02T03:04:05Z"


def test_a_missing_value_is_the_default(client: httpx.Client) -> None:
    """It is the schema's default, None, or an empty array; an empty value counts as missing where declared so."""
    answer = client.get("/problems/all/1?tag=")
    assert answer.json() == {
        "number": "int 1",
        "page": "int 3",
        "x_reader": "str Ann",
        "day": "date 2026-02-28",
        "order": "tuple ()",
        "tag": "tuple ()",
        "x_sizes": "tuple ()",
    } | dict.fromkeys(("price", "colour", "code", "row", "gift", "since"), "NoneType None")


def test_only_named_parameters_are_passed(client: httpx.Client) -> None:
    """A responder receives the parameters that it names; of a repeated parameter, the first counts."""
    assert client.post("/problems/all/x?page=5&page=6").json() == {"number": "x", "page": 5}


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("page=x", "page", "must be an integer"),
        ("page=", "page", "must be an integer"),
        ("page=1.0", "page", "must be an integer"),
        ("page=%D9%A1", "page", "must be an integer"),
        ("page=-1", "page", "must be greater than or equal to 0"),
        (f"page=-{'9' * 5000}", "page", "must be greater than or equal to 0"),
        ("price=NaN", "price", "must be a number"),
        ("price=0.0999", "price", "must be greater than or equal to 0.1"),
        ("price=100", "price", "must be less than 100"),
        ("colour=Red", "colour", "must be one of red, blue"),
        ("code=a", "code", "size must be at least 2"),
        ("code=abcde", "code", "size must be between 0 and 4"),
        ("code=ab%0A", "code", "must match ^[a-z]+$"),
        ("row=I", "row", "must be a row of {A} to {H}"),
        ("code=ab%00", "code", "must not contain NUL"),
        ("code=ab%FF", "code", "must be UTF-8"),
        ("code=ab%EF%BF%BD", "code", "must match ^[a-z]+$"),
        ("gift=yes", "gift", "must be true or false"),
        ("day=2027-02-29", "day", "must be a date, such as 2026-11-22"),
        ("day=20270228", "day", "must be a date, such as 2026-11-22"),
        ("since=2027-01-02T03:04:05", "since", "must be a date-time, such as 2026-11-22T17:30:00Z"),
        ("since=2027-01-02T24:00:00Z", "since", "must be a date-time, such as 2026-11-22T17:30:00Z"),
        (f"order={ORDER[1:]}", "order", f"'{ORDER[1:]}' must be a uuid, such as {ORDER}"),
        ("tag=1&tag=x", "tag", "'x' must be an integer"),
    ],
)
def test_a_value_that_breaks_the_schema_is_refused(client: httpx.Client, query: str, field: str, message: str) -> None:
    """The violation names the parameter, in the words of CONTRACT."""
    answer = client.get(f"/problems/all/1?{query}")
    assert (answer.status_code, answer.json()["title"]) == (400, "Constraint Violation")
    assert answer.json()["violations"] == [{"field": field, "message": message}]


@pytest.mark.parametrize("price", ["0.1", "99.9999", "1e1"])
def test_bounds_are_exact(client: httpx.Client, price: str) -> None:
    """A bound of the schema is the exact decimal, not the nearest binary number."""
    assert client.get(f"/problems/all/1?price={price}").status_code == 200


@pytest.mark.parametrize(("prefix", "status"), [("/problems", 400), ("/strict", 422)])
def test_all_violations_are_reported_together(client: httpx.Client, prefix: str, status: int) -> None:
    """There is one violation for each parameter of the path, the query and the header fields, also for HEAD."""
    client.headers["X-Reader"] = ""
    url, headers = f"{prefix}/all/100?page=x&gift=1", {"X-Sizes": "S,XL"}
    answer = client.get(url, headers=headers)
    assert answer.status_code == client.head(url, headers=headers).status_code == status
    assert {each["field"]: each["message"] for each in answer.json()["violations"]} == {
        "number": "must be less than or equal to 99",
        "page": "must be an integer",
        "gift": "must be true or false",
        "X-Reader": "must not be blank",
        "X-Sizes": "'XL' must be one of S, M",
    }


def test_refusals_are_in_the_format_of_the_group(client: httpx.Client) -> None:
    """Plain text has a line for each violation."""
    del client.headers["X-Reader"]
    answer = client.get("/text/all/0")
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert answer.text == "number: must be greater than or equal to 1\nX-Reader: must not be blank"


def test_a_refusal_may_be_404(client: httpx.Client) -> None:
    """With `refusal=404` the answer says why, but has no body if the operation declares so for its 404."""
    answer = client.get("/problems/ids/x?page=y")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "number: must be an integer; page: must be an integer",
    )
    empty = client.get("/problems/empty/x")
    assert (empty.status_code, empty.content, "Content-Type" in empty.headers) == (404, b"", False)


def bearer(token: str) -> dict[str, str]:
    """Return the header field for a token."""
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("sent", [{}, {"Authorization": ""}, {"Authorization": "Basic"}, {"Authorization": "Odd x"}])
def test_without_credentials_it_is_401(client: httpx.Client, sent: dict[str, str]) -> None:
    """Each scheme that allows access is a challenge, in the group's realm; the answer may not be stored."""
    answer = client.get("/problems/either", headers=sent)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (401, "no-store")
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="shelf", charset="UTF-8", Bearer realm="shelf"'
    assert client.get("/strict/bearer").headers["WWW-Authenticate"] == 'Bearer realm="all"'
    assert client.head("/strict/bearer").status_code == 401
    assert client.options("/strict/bearer").status_code == 200


def test_the_authenticator_verifies_tokens(client: httpx.Client) -> None:
    """The resource receives the principal; a refusal has the authenticator's words, in the realm of the resource."""
    assert client.get("/problems/bearer", headers=bearer("ann")).json() == "ann"
    for bad in BAD:
        answer = client.get("/problems/bearer", headers=bearer(bad))
        assert (answer.status_code, answer.json()["detail"]) == (401, "A bad token.")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="shelf", error="invalid_token"'
    assert client.get("/problems/bearer", headers={"Authorization": "Basic eDp5"}).status_code == 401


def test_other_schemes_are_up_to_the_resource(client: httpx.Client) -> None:
    """The host only requires credentials, and passes the request on."""
    assert client.get("/problems/either", headers={"Authorization": "basic eDp5"}).json() == "basic eDp5"
    assert client.get("/problems/either", headers=bearer("ann")).json() == "ann"


def test_a_missing_role_is_403(client: httpx.Client) -> None:
    """A user with none of the roles gets 403 with the challenge of RFC 6750."""
    assert client.get("/problems/admin", headers=bearer("root")).json() == "root"
    answer = client.get("/problems/admin", headers=bearer("ann"))
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="shelf", error="insufficient_scope"'


def test_without_an_authenticator_secured_operations_are_closed() -> None:
    """An operation that declares security is never open."""
    with running_host(distributions=[plugin_distribution("all", Plugin())]) as host, host.client() as client:
        assert client.get("/problems/bearer", headers=bearer("ann")).status_code == 401
