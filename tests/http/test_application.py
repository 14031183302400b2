"""How each kind of request is answered (CONTRACT 2), on each engine, scheme and protocol version."""

from __future__ import annotations

import json

import pytest
from tests.http.reached import Reached, holds, is_problem
from tests.http.table import LIMIT

METHODS = {"GET", "HEAD", "OPTIONS", "POST", "PUT"}


def test_head_is_get_without_a_body(reached: Reached) -> None:
    """HEAD has the status and headers of GET, and no body."""
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
    """A method that the resource lacks, even an unknown one, is 405 in the group's format; Allow names the others."""
    answer = reached.client.request(method, "/table/items/a")
    is_problem(answer, 405)
    assert set(answer.headers["allow"].split(", ")) >= METHODS
    assert answer.headers["api-version"] == "1.2"
    assert reached.client.request(method, "/text/items/a").headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("path", ["/table", "/table/", "/table/x", "/table/items", "/table/items/a/b", "/table/items/"])
def test_an_unknown_path_below_a_prefix_is_404_in_its_format(reached: Reached, path: str) -> None:
    """A path that matches no route of its group is 404 in the group's error format, whatever the method."""
    for method in ("GET", "POST", "BREW"):
        is_problem(reached.client.request(method, path), 404)
    answer = holds(reached.client.get(path.replace("table", "text")))
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize("path", ["/", "/x", "/tablex", "/TABLE/items/a", "/table%2Fitems/a", "/%00", "/%ff", "/x/y/"])
def test_an_unknown_path_elsewhere_is_a_404_problem(reached: Reached, path: str) -> None:
    """A path outside of every prefix is 404 as problem details, without an API-Version."""
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
        ("/table/items/%4%41", "%4A"),
        ("/table/items/%%34%31", "%41"),
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
def test_more_than_one_trailing_slash_is_another_path(reached: Reached, path: str) -> None:
    """Only one trailing slash is ignored; an empty segment is 404."""
    assert reached.raw_get(path)[0] == 404


@pytest.mark.parametrize("name", ["%FF", "%C3%28", "%00", "a%00b", "%ED%A0%80", "%C0%AF"])
def test_a_segment_that_is_no_text_is_404(reached: Reached, name: str) -> None:
    """A segment that is not UTF-8 or contains NUL is 404 in the group's format."""
    is_problem(reached.client.get(f"/table/items/{name}"), 404)


@pytest.mark.parametrize("target", ["/table/items/%", "/table/items/%G1", "/table/items/\xff", "/table/items/%2"])
def test_a_malformed_target_is_no_500(reached: Reached, target: str) -> None:
    """A target that breaks RFC 3986 is either taken as a name or refused."""
    assert reached.raw_get(target)[0] in (200, 400, 404)


def test_other_forms_of_a_target(reached: Reached) -> None:
    """The absolute form names the same resource (RFC 9112, 3.2.2); `*` names no resource of a plugin."""
    scheme = reached.lane.scheme
    assert reached.raw_get(f"{scheme}://localhost/table/items/a?x=1")[0] == 200
    assert reached.raw_get("*", method="OPTIONS")[0] in (200, 204, 400, 404)
    assert reached.raw_get("localhost:80", method="CONNECT")[0] in (400, 404, 405, 501)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/xml", "multipart/form-data", "application/x-www-form-urlencoded", "json", ";"]
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_that_is_not_json_is_415(reached: Reached, method: str, kind: str) -> None:
    """Another Content-Type is 415, both where the host reads the body and where Falcon does."""
    answer = reached.client.request(method, "/table/items/a", content=b'{"text":"x"}', headers={"Content-Type": kind})
    is_problem(answer, 415)


def test_a_long_content_type_is_415(reached: Reached) -> None:
    """Falcon would take seconds to parse this one, while nobody else is served."""
    for length, status in ((977, 201), (978, 415), (60_000, 415)):
        kind = f'application/json;pad="{";" * length}"'
        answer = reached.client.post("/table/items/a", content=b'{"text":"x"}', headers={"Content-Type": kind})
        assert answer.status_code == status, length


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
    """If no response is acceptable to the client, the answer is 406 in the group's format."""
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
    """Parameters are ignored, wildcards count, and a malformed Accept excludes nothing."""
    assert reached.client.get("/table/items/a", headers={"Accept": accept}).status_code == 200


BAD_JSON = [b"{", b"\xff", b'{"text":"\\ud800"}', b'{"text":NaN}', b'{"text":1e999999999}', b"[" * 900, b"", b"nul"]


@pytest.mark.parametrize("body", BAD_JSON)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_malformed_json_is_400(reached: Reached, method: str, body: bytes) -> None:
    """Malformed or meaningless JSON is 400 and never 500."""
    headers = {"Content-Type": "application/json"}
    is_problem(reached.client.request(method, "/table/items/a", content=body, headers=headers), 400)


def body_of(size: int) -> bytes:
    """Return a JSON body of a given size."""
    return b'{"text":"' + b"x" * (size - 11) + b'"}'


def test_each_group_has_its_own_limit_of_bodies(reached: Reached) -> None:
    """A body of exactly the limit is read, one more byte is 413, chunked or not; another group has the host's limit."""
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
        ["Host: " + "a" * 256],
        ["Host: [" + ":" * 46 + "]"],
        ["Host: [:::]"],
        ["Host: [127.0.0.1]"],
        ["Host: [..]:80"],
        ["Host: localhost", "Host: other"],
        ["Host:"],
        ["X-None: 1"],
    ],
    ids=str,
)
def test_an_invalid_host_is_400(reached: Reached, hosts_sent: list[str]) -> None:
    """A malformed, repeated or missing Host is 400 (RFC 9112, 3.2), before any plugin receives the request."""
    assert reached.raw_get("/table/items/a", *hosts_sent)[0] == 400


@pytest.mark.parametrize(
    "name", ["localhost", "a.example:8080", "[::1]", "[::1]:80", "127.0.0.1", "xn--9ca.example", "a_b"]
)
def test_a_host_of_any_valid_form_is_served(reached: Reached, name: str) -> None:
    """Names, IPv4 and IPv6 addresses are accepted, with or without a port."""
    assert reached.raw_get("/table/items/a", f"Host: {name}")[0] == 200
