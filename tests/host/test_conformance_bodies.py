"""The conformance suite sends each operation the media type that it reads: JSON, a form or another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plughost.testing import running_host
from plughost.testing._conformance import make_ask
from plughost.testing._operations import operation_calls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


READS = """
from pydantic import BaseModel

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import read_form


class Entry(BaseModel):
    title: str


class Reads:
    def on_post(self, req, resp):
        {reads}


@hookimpl
def register_routes(context):
    post = Operation(summary="Read", {declared})
    return [RouteGroup(prefix="/reads", routes=(Route("", Reads(), {{"POST": post}}),))]
"""
FORM = 'request=Entry, consumes=("multipart/form-data", "application/x-www-form-urlencoded")'
IMAGE = 'consumes=("image/*",)'
RIGHT = {
    "planted-form": ("read_form(req, Entry)", FORM),
    "planted-roomy": ("read_form(req, Entry)", f"{FORM}, body_limit=2_000_000"),
    "planted-image": ("req.stream.read()", IMAGE),
    "planted-video": ("req.stream.read()", f"{IMAGE}, body_limit=2 * 1024**3"),
}
TESTS = (
    "test_a_malformed_body_is_refused",
    "test_a_body_of_another_type_is_415",
    "test_a_body_over_the_limit_is_413_and_others_are_served",
)


@pytest.mark.parametrize("name", RIGHT)
def test_an_operation_that_reads_no_json_passes(plant: Callable[..., Any], name: str) -> None:
    """The suite doesn't take a form or an image for malformed JSON, and respects the operation's own limit."""
    reads, declared = RIGHT[name]
    suite = plant(name, READS.format(reads=reads, declared=declared))
    _run(suite, name)


NEEDY = """
from plughost import Operation, Parameter, Response, Route, RouteGroup, hookimpl
from pydantic import BaseModel

from plughost.http import read_body


class Entry(BaseModel):
    title: str


class Needy:
    def on_get(self, req, resp, **values):
        resp.media = {name: str(value) for name, value in values.items()}

    def on_post(self, req, resp, **values):
        resp.media = read_body(req, Entry)


def parameter(name, place, **schema):
    return Parameter(name=name, place=place, description="One.", schema=schema, required=place != "path")


NEEDS = (
    parameter("code", "path", type="string", pattern="^[A-Z]{2}$", examples=["NZ"]),
    parameter("size", "query", type="integer", minimum=7),
    parameter("tag", "query", type="array", items={"type": "string", "enum": ["a/b"]}),
    parameter("since", "query", type="string", format="date-time"),
    parameter("X-Gift", "header", type="boolean"),
    parameter("X-Name", "header", type="string", minLength=3),
)


@hookimpl
def register_routes(context):
    operations = {
        "GET": Operation(summary="Get", parameters=NEEDS),
        "POST": Operation(summary="Post", parameters=NEEDS, request=Entry),
    }
    route = Route("/{day:dt}/{key:uuid}/{code}/{n:int}", Needy(), operations)
    return [RouteGroup(prefix="/needy", routes=(route,))]
"""


def test_an_operation_gets_the_parameters_that_it_needs(plant: Callable[..., Any]) -> None:
    """The suite sends a valid value of each: an example, or one that the schema or Falcon's converter accepts."""
    suite = plant("planted-needy", NEEDY)
    with running_host(["planted-needy"], strict=True) as host, suite.clients(host) as client_of:
        calls = operation_calls(host, "planted-needy")
        assert [make_ask(client_of)(call).status_code for call in calls if call.method == "GET"] == [200]
        for test in TESTS:
            getattr(suite, test)(make_ask(client_of), calls)


COUNTING = """
from plughost import Operation, Parameter, Route, RouteGroup, hookimpl


class Counting:
    def on_get(self, req, resp, up_to):
        resp.media = 1.5 * up_to


@hookimpl
def register_routes(context):
    up_to = Parameter(name="up_to", place="query", description="The last.", schema={"type": "integer", "default": 1})
    get = Operation(summary="Get", parameters=(up_to,))
    return [RouteGroup(prefix="/counting", routes=(Route("", Counting(), {"GET": get}),))]
"""


def test_a_number_that_no_float_holds_must_not_be_a_500(plant: Callable[..., Any]) -> None:
    """Python's integers have no bounds, so declared ones may need a maximum."""
    suite = plant("planted-counting", COUNTING)
    with running_host(["planted-counting"], strict=True) as host, suite.clients(host) as client_of:
        calls = operation_calls(host, "planted-counting")
        with pytest.raises(AssertionError, match="GET /counting: 500"):
            suite.test_a_number_in_the_query_may_have_many_digits(make_ask(client_of), calls)


DEEP = """
from plughost import Operation, Route, RouteGroup, hookimpl


class Deep:
    def on_get(self, req, resp, name):
        resp.media = name


@hookimpl
def register_routes(context):
    route = Route("/{name:path}", Deep(), {"GET": Operation(summary="Get")})
    return [RouteGroup(prefix="/deep", routes=(route,))]
"""


def test_a_group_that_has_every_path_below_its_prefix_passes(plant: Callable[..., Any]) -> None:
    """No path below it is unknown, so none is 404."""
    suite = plant("planted-deep", DEEP)
    with running_host(["planted-deep"], strict=True) as host, suite.clients(host) as client_of:
        ask, calls = make_ask(client_of), operation_calls(host, "planted-deep")
        suite.test_unknown_paths_below_the_prefix_are_the_plugins_404(ask, calls)
        suite.test_one_trailing_slash_is_the_same_resource(ask, calls)


EMPTY = """
from plughost import Operation, Response, Route, RouteGroup, hookimpl


class Empty:
    def on_get(self, req, resp):
        resp.status = 204


@hookimpl
def register_routes(context):
    get = Operation(summary="Get", responses={204: Response(description="It is there.", media_types=())})
    return [RouteGroup(prefix="/empty", routes=(Route("", Empty(), {"GET": get}),))]
"""


def test_an_operation_without_a_body_ignores_accept(plant: Callable[..., Any]) -> None:
    """The suite expects no 406 where no response has a type to choose."""
    suite = plant("planted-empty", EMPTY)
    with running_host(["planted-empty"], strict=True) as host, suite.clients(host) as client_of:
        suite.test_an_accept_that_excludes_all_is_406(make_ask(client_of), operation_calls(host, "planted-empty"))


def test_a_form_that_accepts_anything_is_found(plant: Callable[..., Any]) -> None:
    """The failure names the operation and the body that it accepted."""
    suite = plant("planted-deaf", READS.format(reads="resp.media = 1", declared=FORM))
    with pytest.raises(AssertionError, match="POST /reads with b'no parts': 200"):
        _run(suite, "planted-deaf")


def test_a_form_that_is_not_declared_is_found(plant: Callable[..., Any]) -> None:
    """The failure says which status is right, and what to declare."""
    suite = plant("planted-secret", READS.format(reads="read_form(req, Entry)", declared="request=Entry"))
    advice = r"declares application/json: name what it reads in `consumes`"
    with pytest.raises(AssertionError, match=rf"POST /reads with b'': 415, not 400.*{advice}"):
        _run(suite, "planted-secret")


def test_an_event_stream_that_is_not_declared_is_found(
    plant: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, the suite would read it for ever."""
    endless = "resp.content_type = 'text/event-stream'; resp.stream = iter(lambda: b': nothing\\n\\n', None)"
    source = READS.format(reads=endless, declared="").replace("on_post", "on_get").replace("POST", "GET")
    suite = plant("planted-endless", source)
    advice = r'GET /reads sends an event stream: declare it, produces=\("text/event-stream",\)'
    with pytest.raises(AssertionError, match=advice):
        suite.test_it_leaves_no_file_and_no_connection(tmp_path, monkeypatch)
    with (
        running_host(["planted-endless"], strict=True) as host,
        suite.clients(host) as client_of,
        pytest.raises(AssertionError, match=advice),
    ):
        suite.test_head_is_get_without_a_body(make_ask(client_of), operation_calls(host, "planted-endless"))


def test_a_rate_limit_is_reported(plant: Callable[..., Any]) -> None:
    """For an answer of 429, the failure says how to set a limit that the suite doesn't reach."""
    refusal = "import falcon; raise falcon.HTTPTooManyRequests"
    suite = plant("planted-limited", READS.format(reads=refusal, declared=FORM))
    with pytest.raises(AssertionError, match=r"POST /reads: 429\. Set a rate limit .*\"rate_limit\""):
        _run(suite, "planted-limited")


def _run(suite: Any, name: str) -> None:
    with running_host([name], strict=True) as host, suite.clients(host) as client_of:
        for test in TESTS:
            getattr(suite, test)(make_ask(client_of), operation_calls(host, name))
