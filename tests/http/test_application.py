"""What holds everywhere (CONTRACT 2), on each engine, scheme and protocol version."""

from __future__ import annotations

import io
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from wsgiref.validate import validator

import httpx
import pytest
import structlog
from falcon.testing import create_environ
from tests.http.table import LANES, LIMIT, RAISED, Lane, Table

from plughost.testing import RunningHost, plugin_distribution, running_host

Logged = list[dict[str, Any]]
METHODS = {"GET", "HEAD", "POST", "PUT"}


class Reached:
    """A host and a client on one lane to it."""

    def __init__(self, host: RunningHost, lane: Lane, client: httpx.Client, logged: Logged) -> None:
        """Keep them."""
        self.host = host
        self.lane = lane
        self.client = client
        self.logged = logged

    def raw(self, request: bytes) -> tuple[int, str]:
        """Send bytes over HTTP/1.1 and return the status and all that came back."""
        with socket.create_connection(("127.0.0.1", self.host.port("main", self.lane.scheme)), timeout=20) as plain:
            connection: socket.socket = plain
            if self.lane.scheme == "https":
                context = ssl.create_default_context()
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                connection = context.wrap_socket(plain, server_hostname="localhost")
            connection.sendall(request)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            connection.close()
        return int(answer[9:12]), answer.decode("latin-1")

    def raw_get(self, target: str, *headers: str, method: str = "GET") -> tuple[int, str]:
        """Send a request line as it is."""
        lines = [f"{method} {target} HTTP/1.1", *(headers or ("Host: localhost",)), "Connection: close", "", ""]
        return self.raw("\r\n".join(lines).encode("latin-1"))


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, tuple[RunningHost, Logged]]]:
    """A host on each engine, and what it logs."""
    with ExitStack() as stack:
        running = {}
        for engine in ("waitress", "granian"):
            logged: Logged = []

            def keep(logger: object, method: str, event: Any, logged: Logged = logged) -> Any:
                logged.append({**event, "level": method})
                raise structlog.DropEvent

            logger: Any = structlog.wrap_logger(structlog.ReturnLogger(), processors=[keep])
            settings = {"sites": {"main": {"http_engine": engine}}}
            installed = [plugin_distribution("table", Table())]
            host = stack.enter_context(running_host(distributions=installed, settings=settings, logger=logger))
            running[engine] = (host, logged)
        yield running


@pytest.fixture(params=LANES, ids=str)
def reached(request: pytest.FixtureRequest, hosts: dict[str, tuple[RunningHost, Logged]]) -> Iterator[Reached]:
    """One lane to a host."""
    lane: Lane = request.param
    host, logged = hosts[lane.engine]
    logged.clear()
    with host.client(scheme=lane.scheme, http2=lane.http2) as client:
        yield Reached(host, lane, client, logged)


def holds(answer: httpx.Response) -> httpx.Response:
    """Check what every response has, and return it."""
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.headers.get_list("x-request-id")) == 1
    if answer.content:
        assert len(answer.headers.get_list("content-type")) == 1
    return answer


def is_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """Check that an answer is a problem of a status, and return it."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem: dict[str, Any] = holds(answer).json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    return problem


def test_head_is_get_without_a_body(reached: Reached) -> None:
    """HEAD on a GET has its status and headers, and no body."""
    get, head = reached.client.get("/table/items/a"), reached.client.head("/table/items/a")
    assert (head.status_code, head.content) == (200, b"")
    ours = {"content-type", "content-length", "api-version", "vary", "x-content-type-options"}
    assert {name: head.headers[name] for name in ours} == {name: get.headers[name] for name in ours}


def test_options_names_the_methods(reached: Reached) -> None:
    """OPTIONS on a known path is 200 or 204 with Allow; on an unknown one it is 404."""
    answer = holds(reached.client.options("/table/items/a"))
    assert answer.status_code in (200, 204)
    assert set(answer.headers["allow"].split(", ")) >= METHODS
    assert reached.client.options("/table/nothing").status_code == 404


@pytest.mark.parametrize("method", ["DELETE", "PATCH", "TRACE", "PROPFIND", "BREW", "WEBSOCKET"])
def test_another_method_is_405_with_allow(reached: Reached, method: str) -> None:
    """A method that the resource lacks, registered or not, is 405 in the group's format, and Allow names the others."""
    answer = reached.client.request(method, "/table/items/a")
    is_problem(answer, 405)
    assert set(answer.headers["allow"].split(", ")) >= METHODS
    assert answer.headers["api-version"] == "1.2"
    assert reached.client.request(method, "/text/items/a").headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("path", ["/table", "/table/", "/table/x", "/table/items", "/table/items/a/b", "/table/items/"])
def test_an_unknown_path_below_a_prefix_is_404_in_its_format(reached: Reached, path: str) -> None:
    """What no route of a group matches is 404 in the group's error format, whatever the method."""
    for method in ("GET", "POST", "BREW"):
        is_problem(reached.client.request(method, path), 404)
    answer = holds(reached.client.get(path.replace("table", "text")))
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", ["/", "/x", "/tablex", "/TABLE/items/a", "/table%2Fitems/a", "/%00", "/%ff", "/x/y/"])
def test_an_unknown_path_elsewhere_is_a_404_problem(reached: Reached, path: str) -> None:
    """What no prefix covers is 404 as problem details, without an API-Version."""
    answer = reached.client.get(path)
    is_problem(answer, 404)
    assert "api-version" not in answer.headers


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/table/items/a", "a"),
        ("/table/items/a/", "a"),
        ("/table/items/a%2F", "a/"),
        ("/table/items/a%2f/", "a/"),
        ("/table/items/%2F", "/"),
        ("/table/items/%2E%2E", ".."),
        ("/table/items/%2E", "."),
        ("/%74able/items/%61", "a"),
        ("/table/items/%C3%A9", "é"),
        ("/table/items/%25%3F%20%23+", "%? #+"),
        ("/table/items/%252F", "%2F"),
        ("/table/items/%01%0A", "\x01\n"),
        ("/table/items/%F0%9F%93%9A", "📚"),
        ("/table/items/a;b=c", "a;b=c"),
        ("/table/items/a?x=/y/", "a"),
    ],
)
def test_a_segment_is_data(reached: Reached, path: str, name: str) -> None:
    """A literal slash separates, one trailing slash is ignored, and the rest arrives percent-decoded."""
    status, answer = reached.raw_get(path)
    assert status == 200
    assert json.loads(answer.rpartition("\r\n\r\n")[2].encode("latin-1")) == {"name": name}


@pytest.mark.parametrize("path", ["/table/items/a//", "/table//items/a", "//table/items/a", "/table/items//"])
def test_more_slashes_name_something_else(reached: Reached, path: str) -> None:
    """Only one trailing slash is the same resource; an empty segment is 404."""
    assert reached.raw_get(path)[0] == 404


@pytest.mark.parametrize("name", ["%FF", "%C3%28", "%00", "a%00b", "%ED%A0%80", "%C0%AF"])
def test_what_is_no_text_names_nothing(reached: Reached, name: str) -> None:
    """A segment that is not UTF-8, or holds NUL, is 404 in the group's format."""
    is_problem(reached.client.get(f"/table/items/{name}"), 404)


@pytest.mark.parametrize("target", ["/table/items/%", "/table/items/%G1", "/table/items/\xff", "/table/items/%2"])
def test_a_malformed_target_is_no_500(reached: Reached, target: str) -> None:
    """A target that breaks RFC 3986 is answered as a name, or refused."""
    assert reached.raw_get(target)[0] in (200, 400, 404)


def test_other_forms_of_a_target(reached: Reached) -> None:
    """The absolute form names the same resource (RFC 9112, 3.2.2); `*` is no resource of a plugin."""
    scheme = reached.lane.scheme
    assert reached.raw_get(f"{scheme}://localhost/table/items/a?x=1")[0] == 200
    assert reached.raw_get("*", method="OPTIONS")[0] in (200, 204, 400, 404)
    assert reached.raw_get("localhost:80", method="CONNECT")[0] in (400, 404, 405, 501)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/xml", "multipart/form-data", "application/x-www-form-urlencoded", "json", ";"]
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_that_is_not_json_is_415(reached: Reached, method: str, kind: str) -> None:
    """Another Content-Type is 415, for what the host reads and for what Falcon reads."""
    answer = reached.client.request(method, "/table/items/a", content=b'{"text":"x"}', headers={"Content-Type": kind})
    is_problem(answer, 415)


@pytest.mark.parametrize("kind", [None, "application/json", "application/json;charset=UTF-8"])
@pytest.mark.parametrize(("method", "status"), [("POST", 201), ("PUT", 200)])
def test_json_is_read(reached: Reached, method: str, status: int, kind: str | None) -> None:
    """JSON is read with or without its Content-Type."""
    headers = {} if kind is None else {"Content-Type": kind}
    answer = holds(reached.client.request(method, "/table/items/a", content=b'{"text":"x"}', headers=headers))
    assert (answer.status_code, answer.json()) == (status, {"text": "x"})


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/json;q=0",
        "application/json;q=0, */*",
        "text/*",
        "application/xml, text/plain;q=0.5",
        "*/*;q=0",
        "application/*;q=0, text/html",
    ],
)
def test_an_accept_that_excludes_json_is_406(reached: Reached, accept: str) -> None:
    """What can't be made for the client is 406, in the group's format."""
    is_problem(reached.client.get("/table/items/a", headers={"Accept": accept}), 406)


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;version=2;q=0.1",
        "APPLICATION/JSON",
        "application/*",
        "*/*",
        "text/html, */*;q=0.1",
        "",
        "rubbish",
        "/",
        "application/json;q=rubbish, */*",
        ",,,",
        "*",
    ],
)
def test_an_accept_that_allows_json_is_served(reached: Reached, accept: str) -> None:
    """Parameters don't matter, wildcards count, and what is no Accept at all excludes nothing."""
    assert reached.client.get("/table/items/a", headers={"Accept": accept}).status_code == 200


BAD_JSON = [b"{", b"\xff", b'{"text":"\\ud800"}', b'{"text":NaN}', b'{"text":1e999999999}', b"[" * 900, b"", b"nul"]


@pytest.mark.parametrize("body", BAD_JSON)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_malformed_json_is_400(reached: Reached, method: str, body: bytes) -> None:
    """What is no JSON, or stands for nothing, is 400 and never 500."""
    headers = {"Content-Type": "application/json"}
    is_problem(reached.client.request(method, "/table/items/a", content=body, headers=headers), 400)


def body_of(size: int) -> bytes:
    """Return a JSON body of a size."""
    return b'{"text":"' + b"x" * (size - 11) + b'"}'


def test_the_limit_of_a_body_is_the_groups_own(reached: Reached) -> None:
    """A body of exactly the limit is read, one byte more is 413, chunked or not; another group has the host's limit."""
    kind = {"Content-Type": "application/json"}
    for content, status in ((body_of(LIMIT), 201), (body_of(LIMIT + 1), 413)):
        for form in (content, iter([content[:100], content[100:]])):
            answer = holds(reached.client.post("/table/items/a", content=form, headers=kind))
            assert answer.status_code == status
    assert reached.client.post("/text/items/a", content=body_of(LIMIT + 1), headers=kind).status_code == 201
    for form in (body_of(2**20 + 1), iter([body_of(2**20 + 1)])):
        answer = reached.client.post("/text/items/a", content=form, headers=kind)
        assert (answer.status_code, answer.headers["content-type"]) == (413, "text/plain; charset=utf-8")
    assert reached.client.get("/table/items/a").status_code == 200


@pytest.mark.parametrize("given", ["a", "A-Z_0.9", "x" * 128])
def test_a_request_id_is_kept(reached: Reached, given: str) -> None:
    """A well-formed X-Request-ID comes back as it was sent, on errors too."""
    for path in ("/table/items/a", "/nowhere", "/table/raises/value"):
        assert reached.client.get(path, headers={"X-Request-ID": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a,b", "<script>", "a\tb", "ä", "a\u2028"])
def test_another_request_id_is_replaced(reached: Reached, given: str) -> None:
    """An X-Request-ID of any other form is replaced by a new one, of a well-formed alphabet."""
    headers = [(b"X-Request-ID", given.encode())]
    told = [reached.client.get("/table/items/a", headers=headers).headers["x-request-id"] for _ in range(2)]
    assert len(set(told)) == 2
    assert all(each.isalnum() and 16 <= len(each) <= 128 for each in told)


@pytest.mark.parametrize(("asked", "served"), [(None, "1.2"), ("1.0", "1.0"), ("1", "1.2"), ("1.2", "1.2")])
def test_a_minor_version_is_chosen(reached: Reached, asked: str | None, served: str) -> None:
    """The version that served is told with Vary, on success and on errors."""
    headers = {} if asked is None else {"API-Version": asked}
    for path in ("/table/items/a", "/table/nothing", "/table/raises/value"):
        answer = reached.client.get(path, headers=headers)
        assert (answer.headers["api-version"], answer.headers["vary"]) == (served, "API-Version")


@pytest.mark.parametrize("asked", ["2", "1.1", "", "v1", "1.0.0", "01.0", "1,1", "٣", "1.0\x85"])
def test_an_unknown_minor_version_is_400(reached: Reached, asked: str) -> None:
    """A version that is malformed or not spoken is 400, and names those that are; Vary stays."""
    answer = reached.client.get("/table/items/a", headers=[(b"API-Version", asked.encode())])
    problem = is_problem(answer, 400)
    assert "1.0, 1.2" in problem["detail"]
    assert answer.headers["vary"] == "API-Version"
    assert "api-version" not in answer.headers


def test_two_minor_versions_are_400(reached: Reached) -> None:
    """A repeated API-Version is malformed."""
    is_problem(reached.client.get("/table/items/a", headers=[("API-Version", "1.0"), ("API-Version", "1.0")]), 400)


def test_a_group_without_minor_versions_ignores_them(reached: Reached) -> None:
    """Where no minor version is declared, API-Version changes nothing and is not told."""
    answer = reached.client.get("/text/items/a", headers={"API-Version": "rubbish"})
    assert (answer.status_code, "api-version" in answer.headers, "vary" in answer.headers) == (200, False, False)


@pytest.mark.parametrize("what", ["value", "unshowable", "store"])
def test_an_unhandled_exception_tells_nothing_but_the_id(reached: Reached, what: str) -> None:
    """A 500 holds the request id and nothing internal; the log has the traceback under that id."""
    answer = reached.client.get(f"/table/raises/{what}", headers={"X-Request-ID": "find-me"})
    is_problem(answer, 500)
    assert "find-me" in answer.text
    assert "secret" not in answer.text
    assert "Error" not in answer.text.replace("Internal Server Error", "")
    line = next(line for line in reached.logged if line["event"] == "unhandled exception")
    assert (line["plugin"], line["request_id"], line["exc_info"]) == ("table", "find-me", RAISED[what])


@pytest.mark.parametrize(("what", "status"), [("unavailable", 503), ("busy", 503), ("duplicate", 409)])
def test_errors_of_stores_have_their_status(reached: Reached, what: str, status: int) -> None:
    """A store out of reach is 503 with Retry-After, a duplicate 409."""
    answer = reached.client.get(f"/table/raises/{what}")
    is_problem(answer, status)
    assert ("retry-after" in answer.headers) == (status == 503)


def test_an_error_of_a_plugins_own_keeps_its_headers(reached: Reached) -> None:
    """A subclass of Falcon's HTTPError is written in the group's format, with its title, detail and headers."""
    answer = reached.client.get("/table/raises/odd")
    problem = is_problem(answer, 418)
    assert (problem["title"], problem["detail"], answer.headers["x-pot"]) == ("Teapot", "I am one.", "short")


def test_a_detail_that_cannot_be_encoded_is_sent_nevertheless(reached: Reached) -> None:
    """A lone surrogate in an error's text is replaced, in either format."""
    is_problem(reached.client.get("/table/raises/surrogate"), 400)
    assert reached.client.get("/text/raises/surrogate").status_code == 400


def test_redirects_and_statuses_may_be_raised(reached: Reached) -> None:
    """Falcon's HTTPStatus and its redirects pass through."""
    redirect = holds(reached.client.get("/table/raises/redirect"))
    assert (redirect.status_code, redirect.headers["location"]) == (302, "/elsewhere")
    later = holds(reached.client.get("/table/raises/status"))
    assert (later.status_code, later.text) == (202, "later")


def test_a_resource_that_sets_nothing_answers_200(reached: Reached) -> None:
    """A responder without effect is an empty 200 without a Content-Type."""
    answer = holds(reached.client.get("/table/yields/nothing"))
    assert (answer.status_code, answer.content, "content-type" in answer.headers) == (200, b"", False)


def test_a_204_has_neither_type_nor_length(reached: Reached) -> None:
    """204 says nothing about a body (RFC 9110, 8.6)."""
    answer = holds(reached.client.get("/table/yields/no-content"))
    assert answer.status_code == 204
    assert {"content-type", "content-length"}.isdisjoint(answer.headers)


def test_a_result_that_is_no_json_is_500(reached: Reached) -> None:
    """What can't be serialised is an unhandled exception, with every common header."""
    answer = reached.client.get("/table/yields/unserialisable")
    is_problem(answer, 500)
    assert "secret" not in answer.text
    assert [line["event"] for line in reached.logged] == ["unhandled exception"]


def test_cookies_are_separate_headers(reached: Reached) -> None:
    """Each cookie has a Set-Cookie of its own."""
    answer = reached.client.get("/table/yields/cookie")
    assert [cookie.partition("=")[0] for cookie in answer.headers.get_list("set-cookie")] == ["a", "b"]


def test_a_stream_is_sent(reached: Reached) -> None:
    """A file-like stream arrives whole, with the common headers; HEAD of it has no body."""
    assert holds(reached.client.get("/table/yields/stream")).text == "streamed"
    assert holds(reached.client.head("/table/yields/stream")).content == b""


def test_a_stream_that_breaks_is_never_taken_for_whole(reached: Reached) -> None:
    """An exception while streaming ends the connection or the stream, so that the client sees an error."""
    with pytest.raises(httpx.HTTPError):
        reached.client.get("/table/yields/cut")
    assert reached.client.get("/table/items/a").status_code == 200


@pytest.mark.parametrize(
    "hosts_sent",
    [
        ["Host: a b"],
        ["Host: <script>"],
        ["Host: localhost:port"],
        ["Host: [::1"],
        ["Host: a@b"],
        ["Host: a/b"],
        ["Host: a, b"],
        ["Host: localhost:99999"],
        ["Host: localhost", "Host: other"],
        ["Host:"],
        ["X-None: 1"],
    ],
    ids=str,
)
def test_a_host_that_is_none_is_400(reached: Reached, hosts_sent: list[str]) -> None:
    """A malformed, repeated or missing Host is 400 (RFC 9112, 3.2), before any plugin sees it."""
    assert reached.raw_get("/table/items/a", *hosts_sent)[0] == 400


@pytest.mark.parametrize(
    "name", ["localhost", "a.localhost:8080", "[::1]", "[::1]:80", "127.0.0.1", "xn--9ca.localhost", "a_b.localhost"]
)
def test_a_host_of_any_valid_form_is_served(reached: Reached, name: str) -> None:
    """Names, IPv4 and IPv6 addresses are taken, with or without a port."""
    assert reached.raw_get("/table/items/a", f"Host: {name}")[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/table/x",
        "/table/items/a",
        "/text/items/%FF",
        *(f"/table/raises/{what}" for what in RAISED),
        *(f"/text/yields/{what}" for what in ("unserialisable", "no-content", "cookie", "stream")),
    ],
)
def test_the_site_keeps_to_wsgi(hosts: dict[str, tuple[RunningHost, Logged]], method: str, path: str) -> None:
    """What a site answers passes `wsgiref.validate`.

    Left out is an empty 200: RFC 9110, 8.3 asks for a Content-Type where there is content; the validator always does.
    """
    host, _ = hosts["waitress"]
    environ = create_environ(path=path, method=method, host="localhost", body='{"text":"x"}')
    environ.pop("wsgi.file_wrapper", None)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read())
    started: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started.append(status)
        return lambda data: None

    try:
        body = validator(host.host.serving.sites["main"])(environ, start_response)
        sent = b"".join(body)
        body.close()  # type: ignore[attr-defined] # the validator's iterator has it
    except AssertionError as error:
        if "No Content-Type" not in str(error):
            raise
    else:
        assert int(started[0][:3]) < 600
        assert method != "HEAD" or not sent
