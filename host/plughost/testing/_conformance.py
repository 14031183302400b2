"""Tests of what holds for every plugin (CONTRACT 2), made from its declarations: one line in a plugin's tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import falcon
import pytest

from plughost._apps.mounting import offers_of
from plughost._plugins.environment import ENTRY_POINT_GROUP
from plughost._settings.errors import did_you_mean
from plughost.testing._databases import store_settings
from plughost.testing._declarations import DeclarationTests
from plughost.testing._fuzzing import FuzzingTests
from plughost.testing._hosts import RunningHost, running_host
from plughost.testing._lifecycle import LifecycleTests
from plughost.testing._operations import DENIED, OperationCall, operation_calls, send, unprepared

if TYPE_CHECKING:
    import httpx

Ask = Callable[..., "httpx.Response"]

_LISTENERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "http/1.1": {"scheme": "http"},
    "https/1.1": {"scheme": "https"},
    "https/2": {"scheme": "https", "http2": True},
}
_MALFORMED: Final = (
    b"",
    b"{",
    b"nope",
    b"{'a': 1}",
    b'{"a": "\xff"}',
    b"\xef\xbb\xbf{}",
    b'{"a": "\\ud800"}',
    b'{"a": NaN}',
    b'{"a": Infinity}',
    b'{"a": 1e999999999}',
    b'{"a": 1e99999999999999999999}',
    b'{"a": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 2000 + b"1" + b"}" * 2000,
)
_NO_OBJECT: Final = (b"null", b"[]", b'"text"', b"5", b"true")
_OTHER_TYPES: Final = ("text/plain", falcon.MEDIA_XML, falcon.MEDIA_URLENCODED)
_NONE: Final[Mapping[str, str]] = {}
_MAX_SENT: Final = 4 * 1024 * 1024
_RAISE_THE_LIMIT: Final = (
    "Set a rate limit that the tests don't reach, such as "
    'conformance("shelf", settings={"plugins": {"shelf": {"rate_limit": "100000/minute"}}})'
)


class Conformance(DeclarationTests, LifecycleTests, FuzzingTests):
    """The tests. `conformance` makes a class of them for one plugin."""

    other_types: ClassVar[Collection[str]]

    @pytest.fixture(scope="class", params=["sqlite", "postgresql"])
    @classmethod
    def host(cls, request: pytest.FixtureRequest) -> Iterator[RunningHost]:
        """A host that serves the plugin and the plugins it requires, on each database."""
        with (
            store_settings(request.param) as stores,
            running_host([cls.plugin], settings={**cls.settings, **stores}, beside=cls.beside, strict=True) as host,
        ):
            if request.param != "sqlite" and not any(each.declared.stores for each in host.host.view.plugins):
                pytest.skip(f"{cls.plugin} keeps nothing in a database")
            yield host

    @pytest.fixture(scope="class")
    @classmethod
    def calls(cls, host: RunningHost) -> list[OperationCall]:
        """Every operation of the plugin whose responses end by themselves."""
        return [call for call in operation_calls(host, cls.plugin) if not call.streams_events]

    @pytest.fixture(params=_LISTENERS)
    def ask(self, request: pytest.FixtureRequest, host: RunningHost) -> Iterator[Ask]:
        """Sends requests over each listener and version of HTTP."""
        with self.clients(host, **_LISTENERS[request.param]) as client_of:
            yield make_ask(client_of)

    def test_a_malformed_body_is_refused(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A malformed JSON body gets 400; one that is no object gets 400 or the format's status.

        So does a multipart form without parts.
        """
        for call in calls:
            invalid = {400, call.group.errors.validation_status}
            sent = []
            if call.reads_json:
                sent = [("application/json", each, {400}) for each in _MALFORMED]
                sent += [("application/json", each, invalid) for each in _NO_OBJECT]
            elif call.operation.request is not None and falcon.MEDIA_MULTIPART in call.consumes:
                sent = [(f"{falcon.MEDIA_MULTIPART}; boundary=x", b"no parts", invalid)]
            for kind, body, expected in sent:
                answer = ask(call, content=body, headers={"Content-Type": kind})
                _check_error(answer, call, expected | call.denials, body[:20])

    def test_a_body_of_another_type_is_415(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A body that the operation doesn't read is refused unread."""
        for call in (each for each in calls if each.consumes):
            for kind in self.other_types:
                if any(fnmatchcase(kind, each) for each in call.consumes):
                    continue
                answer = ask(call, content=b"{}", headers={"Content-Type": kind})
                _check_error(answer, call, {415} | call.denials, kind)

    def test_a_body_over_the_limit_is_413_and_others_are_served(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A body above the limit is refused, and the next request is answered. Limits over 4 MiB are left out."""
        for call in (each for each in calls if each.consumes):
            if call.body_limit > _MAX_SENT:
                continue
            size = call.body_limit + 1
            kind = call.consumes[0].replace("*", "x")
            answer = ask(call, content=b" " * size, headers={"Content-Type": kind})
            _check_error(answer, call, {413} | call.denials, f"{size} bytes")
            if call.reads_json:
                _check_error(ask(call, content=b"{"), call, {400, *DENIED}, "the next one")

    def test_a_number_in_the_query_may_have_many_digits(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A number that no float and no database holds is an error of the client, or is served."""
        for call in calls:
            for each in call.operation.parameters:
                if each.place == "query" and each.schema.get("type") in {"integer", "number"}:
                    ask(replace(call, query=f"{call.query or '?'}&{each.name}={'9' * 400}"))

    def test_an_accept_that_excludes_all_is_406(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A client gets no media type that its `Accept` excludes."""
        for call in calls:
            if call.method == "GET" and offers_of(call.operation) and not call.operation.security:
                answer = ask(call, headers={"Accept": "image/x-nothing-makes-this"})
                _check_error(answer, call, {406}, "Accept")

    def test_another_method_is_405_and_allow_names_those_that_work(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A known path names its methods, in an error and on OPTIONS."""
        for call in calls:
            for method in {"PUT", "POST", "DELETE", "PATCH"} - call.methods:
                answer = ask(call, method=method, content=b"{}")
                _check_error(answer, call, {405}, method)
                assert call.methods <= set(answer.headers["Allow"].split(", ")), call.label
            answer = ask(call, method="OPTIONS")
            assert answer.status_code in {200, 204}, call.label
            assert call.methods <= set(answer.headers["Allow"].split(", ")), call.label

    def test_head_is_get_without_a_body(self, ask: Ask, calls: list[OperationCall]) -> None:
        """HEAD is answered as GET is, and has no content."""
        for call in calls:
            if call.method == "GET":
                head, get = ask(call, method="HEAD"), ask(call)
                assert (head.status_code, head.content) == (get.status_code, b""), call.label
                assert head.headers.get("Content-Type") == get.headers.get("Content-Type"), call.label

    def test_one_trailing_slash_is_the_same_resource(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A literal slash at the end is dropped once."""
        for call in calls:
            if call.method == "GET" and call.path != "/":
                answer = ask(call, path=f"{call.path}/")
                assert answer.status_code == ask(call).status_code, call.label

    def test_unknown_paths_below_the_prefix_are_the_plugins_404(self, ask: Ask, calls: list[OperationCall]) -> None:
        """Every path below the prefix gets its owner's error format."""
        for call in calls:
            has_every_path = any(":path" in route.path for route in call.group.routes)
            if call.group.prefix != "/" and not has_every_path:
                answer = ask(call, method="GET", path=f"{call.group.prefix}/no/such/path/here")
                _check_error(answer, call, {404, *DENIED}, "an unknown path")

    def test_minor_versions_are_told_and_chosen(self, ask: Ask, calls: list[OperationCall]) -> None:
        """Each response names the version that served it. An unknown one is 400, which names the known."""
        for call in calls:
            versions = call.group.versions
            if not versions or call.method != "GET":
                continue
            newest = max(versions, key=lambda version: [int(part) for part in version.split(".")])
            for sent, expected in [({}, newest), *(({"API-Version": each}, each) for each in versions)]:
                answer = ask(call, headers=sent)
                assert answer.headers["API-Version"] == expected, call.label
                assert "API-Version" in answer.headers["Vary"], call.label
            for wrong in ("0.0", "nonsense", "999.1"):
                answer = ask(call, headers={"API-Version": wrong})
                _check_error(answer, call, {400}, wrong)
                assert newest in answer.text, call.label

    def test_every_answer_carries_a_request_id_and_nosniff(self, ask: Ask, calls: list[OperationCall]) -> None:
        """A well-formed request id is kept, another is replaced."""
        for call in calls:
            if call.method == "GET":
                assert ask(call).headers["X-Content-Type-Options"] == "nosniff", call.label
                for sent, kept in (("a.b-1", True), ("a b", False), ("x" * 129, False)):
                    returned = ask(call, headers={"X-Request-ID": sent}).headers["X-Request-ID"]
                    assert (returned == sent) is kept, call.label


def conformance(
    plugin: str,
    settings: Mapping[str, Any] | None = None,
    other_types: Collection[str] = _OTHER_TYPES,
    earlier: Path | None = None,
    prepare: Callable[[RunningHost, httpx.Client], None] = unprepared,
    *,
    beside: Collection[metadata.Distribution] | None = None,
) -> type[Conformance]:
    """Return tests of what holds for every plugin, made from its declarations. Assign them to a name that pytest finds.

        TestConformance = conformance("notes")

    They run on a host with the plugin and the plugins it requires, over HTTP/1.1, HTTPS and HTTP/2, and on SQLite and
    PostgreSQL if it has a store.

    Args:
        plugin: The plugin's name.
        settings: The contents of `plughost.toml`, such as a rate limit that the tests don't reach.
        other_types: Media types that its operations with a body don't read.
        earlier: The wheel of a published version, to test the upgrade from. The operations' examples fill its stores.
        prepare: Called with the host and each client before its first request, such as to sign in if the plugin
            requires it.
        beside: Distributions to serve in addition, as `running_host` has them, such as an authenticator for tests.

    Raises:
        LookupError: No such plugin is installed. pytest reports that once, instead of a failure of each test.
    """
    brought = (each.entry_points.select(group=ENTRY_POINT_GROUP).names for each in beside or ())
    installed = sorted(metadata.entry_points(group=ENTRY_POINT_GROUP).names.union(*brought))
    if plugin not in installed:
        raise LookupError(
            f"no plugin {plugin} is installed (`pip install -e .` installs yours){did_you_mean(plugin, installed)}"
        )
    attributes = {
        "plugin": plugin,
        "settings": dict(settings or {}),
        "other_types": tuple(other_types),
        "earlier": earlier,
        "prepare": staticmethod(prepare),
        "beside": beside,
    }
    return type("TestConformance", (Conformance,), attributes)


def make_ask(client_of: Callable[[str], httpx.Client]) -> Ask:
    """Return a function that sends a request of an operation and fails on responses that are never right."""

    def ask(
        call: OperationCall, *, method: str = "", path: str = "", headers: Mapping[str, str] = _NONE, **sent: Any
    ) -> httpx.Response:
        url, all_headers = (path or call.path) + call.query, {**call.headers, **headers}
        answer = send(client_of(call.site), call, method or call.method, url, headers=all_headers, **sent)
        of_upstream = answer.status_code in {502, 504}.intersection(call.operation.responses)
        assert answer.status_code < 500 or of_upstream, f"{call.label}: {answer.status_code} {answer.text[:200]}"
        assert answer.status_code != 429, f"{call.label}: 429. {_RAISE_THE_LIMIT}"
        return answer

    return ask


def _check_error(answer: httpx.Response, call: OperationCall, expected: Collection[int], what: object) -> None:
    """Check an error: its status, the group's format, and that it has a text."""
    message = f"{call.label} with {what!r}: {answer.status_code} {answer.text[:200]}"
    right = f"{answer.status_code}, not {' or '.join(map(str, sorted(expected)))}"
    advice = ""
    if answer.status_code == 415:
        advice = f" The operation declares {', '.join(call.consumes)}: name what it reads in `consumes`."
    assert answer.status_code in expected, f"{call.label} with {what!r}: {right}: {answer.text[:200]}{advice}"
    assert answer.headers["Content-Type"].partition(";")[0] == call.group.errors.media_type.partition(";")[0], message
    assert answer.text.strip(), message
