"""Properties of every response (CONTRACT 2) on each engine, scheme and protocol version."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from wsgiref.validate import validator

import httpx
import pytest
from falcon.testing import create_environ
from tests.http.reached import Logged, Reached, holds, is_problem
from tests.http.table import RAISED

from plughost.http._environ import FAILED

if TYPE_CHECKING:
    from plughost.testing import RunningHost


@pytest.mark.parametrize("given", ["a", "A-Z_0.9", "x" * 128])
def test_a_request_id_is_kept(reached: Reached, given: str) -> None:
    """A well-formed X-Request-ID comes back as it was sent, on errors too."""
    for path in ("/table/items/a", "/nowhere", "/table/raises/value"):
        assert reached.client.get(path, headers={"X-Request-ID": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a,b", "<script>", "a\tb", "ä", "a\u2028"])
def test_another_request_id_is_replaced(reached: Reached, given: str) -> None:
    """An X-Request-ID of any other form is replaced by a new well-formed one."""
    headers = [(b"X-Request-ID", given.encode())]
    request_ids = [reached.client.get("/table/items/a", headers=headers).headers["x-request-id"] for _ in range(2)]
    assert len(set(request_ids)) == 2
    assert all(each.isalnum() and 16 <= len(each) <= 128 for each in request_ids)


@pytest.mark.parametrize(("asked", "served"), [(None, "1.2"), ("1.0", "1.0"), ("1", "1.2"), ("1.2", "1.2")])
def test_a_minor_version_is_chosen(reached: Reached, asked: str | None, served: str) -> None:
    """The response names the version that served, with Vary, on success and on errors."""
    headers = {} if asked is None else {"API-Version": asked}
    for path in ("/table/items/a", "/table/nothing", "/table/raises/value"):
        answer = reached.client.get(path, headers=headers)
        assert (answer.headers["api-version"], answer.headers["vary"]) == (served, "API-Version")


@pytest.mark.parametrize("asked", ["2", "1.1", "", "v1", "1.0.0", "01.0", "1,1", "٣", "1.0\x85"])
def test_an_unknown_minor_version_is_400(reached: Reached, asked: str) -> None:
    """A malformed or unknown version is 400, and the error names the known ones; Vary stays."""
    answer = reached.client.get("/table/items/a", headers=[(b"API-Version", asked.encode())])
    problem = is_problem(answer, 400)
    assert "1.0, 1.2" in problem["detail"]
    assert answer.headers["vary"] == "API-Version"
    assert "api-version" not in answer.headers


def test_two_minor_versions_are_400(reached: Reached) -> None:
    """A repeated API-Version is malformed."""
    is_problem(reached.client.get("/table/items/a", headers=[("API-Version", "1.0"), ("API-Version", "1.0")]), 400)


def test_a_group_without_minor_versions_ignores_them(reached: Reached) -> None:
    """If a group declares no minor version, API-Version changes nothing and is not in the response."""
    answer = reached.client.get("/text/items/a", headers={"API-Version": "rubbish"})
    assert (answer.status_code, "api-version" in answer.headers, "vary" in answer.headers) == (200, False, False)


@pytest.mark.parametrize("what", ["value", "unshowable", "store"])
def test_an_unhandled_exception_reveals_only_the_id(reached: Reached, what: str) -> None:
    """A 500 has the request id and nothing internal; the log has the traceback under that id."""
    answer = reached.client.get(f"/table/raises/{what}", headers={"X-Request-ID": "find-me"})
    is_problem(answer, 500)
    assert "find-me" in answer.text
    assert "secret" not in answer.text
    assert "Error" not in answer.text.replace("Internal Server Error", "")
    line = next(line for line in reached.logged if line["event"] == "unhandled exception")
    assert (line["plugin"], line["request_id"], line["exc_info"]) == ("table", "find-me", RAISED[what])


@pytest.mark.parametrize(("what", "status"), [("unavailable", 503), ("busy", 503), ("duplicate", 409)])
def test_errors_of_stores_have_their_status(reached: Reached, what: str, status: int) -> None:
    """An unreachable store is 503 with Retry-After; a duplicate is 409."""
    answer = reached.client.get(f"/table/raises/{what}")
    is_problem(answer, status)
    assert ("retry-after" in answer.headers) == (status == 503)


def test_a_plugins_own_error_keeps_its_headers(reached: Reached) -> None:
    """A subclass of Falcon's HTTPError is written in the group's format, with its title, detail and headers."""
    answer = reached.client.get("/table/raises/odd")
    problem = is_problem(answer, 418)
    assert (problem["title"], problem["detail"], answer.headers["x-pot"]) == ("Teapot", "I am one.", "short")


def test_a_detail_that_cannot_be_encoded_is_still_sent(reached: Reached) -> None:
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
    """A responder that sets nothing answers an empty 200 without a Content-Type."""
    answer = holds(reached.client.get("/table/yields/nothing"))
    assert (answer.status_code, answer.content, "content-type" in answer.headers) == (200, b"", False)


def test_a_204_has_neither_type_nor_length(reached: Reached) -> None:
    """204 has no header fields about a body (RFC 9110, 8.6)."""
    answer = holds(reached.client.get("/table/yields/no-content"))
    assert answer.status_code == 204
    assert {"content-type", "content-length"}.isdisjoint(answer.headers)


def test_a_result_that_json_cannot_represent_is_500(reached: Reached) -> None:
    """It is handled like an unhandled exception, with every common header."""
    answer = reached.client.get("/table/yields/unserialisable")
    is_problem(answer, 500)
    assert "secret" not in answer.text
    assert [line["event"] for line in reached.logged] == ["unhandled exception"]


def test_cookies_are_separate_headers(reached: Reached) -> None:
    """Each cookie has its own Set-Cookie field."""
    answer = reached.client.get("/table/yields/cookie")
    assert [cookie.partition("=")[0] for cookie in answer.headers.get_list("set-cookie")] == ["a", "b"]


def test_a_stream_is_sent(reached: Reached) -> None:
    """A file-like stream arrives complete, with the common headers; HEAD has no body."""
    assert holds(reached.client.get("/table/yields/stream")).text == "streamed"
    assert holds(reached.client.head("/table/yields/stream")).content == b""


def test_a_stream_that_fails_never_looks_complete(reached: Reached) -> None:
    """An exception while streaming ends the connection or the HTTP/2 stream, so that the client sees an error."""
    with pytest.raises(httpx.HTTPError):
        reached.client.get("/table/yields/cut")
    assert reached.client.get("/table/items/a").status_code == 200


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
def test_the_site_conforms_to_wsgi(hosts: dict[str, tuple[RunningHost, Logged]], method: str, path: str) -> None:
    """The site's answers pass `wsgiref.validate`.

    An empty 200 is left out: RFC 9110, 8.3 asks for a Content-Type only if there is content; the validator always
    does.
    """
    host, _ = hosts["waitress"]
    environ = create_environ(path=path, method=method, host="localhost", body='{"text":"x"}')
    environ.pop("wsgi.file_wrapper", None)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read())
    environ[FAILED] = None  # otherwise an error of the validator would be answered like any failure
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
