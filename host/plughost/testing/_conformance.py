"""What holds for every plugin (CONTRACT 2), made of what it declares: one line in a plugin's tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import falcon
import pytest

from plughost.testing._databases import store_settings
from plughost.testing._declaring import Declaring
from plughost.testing._fuzzing import Fuzzing
from plughost.testing._hosts import RunningHost, running_host
from plughost.testing._leaving import Leaving
from plughost.testing._operations import DENIED, Called, calls_of, unprepared
from plughost.testing._upgrading import Upgrading

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
_NO_OBJECT: Final = (b"null", b"[]", b'"text"', b"5")
_OTHER_TYPES: Final = ("text/plain", falcon.MEDIA_XML, falcon.MEDIA_URLENCODED)
_MOST_SENT: Final = 4 * 1024 * 1024
_RAISE_THE_LIMIT: Final = (
    "Set a rate limit that the tests don't reach, such as "
    'conformance("shelf", settings={"plugins": {"shelf": {"rate_limit": "100000/minute"}}})'
)


class Conformance(Declaring, Leaving, Fuzzing, Upgrading):
    """The tests. `conformance` makes a class of them for one plugin."""

    other_types: ClassVar[Collection[str]]

    @pytest.fixture(scope="class", params=["sqlite", "postgresql"])
    @classmethod
    def host(cls, request: pytest.FixtureRequest) -> Iterator[RunningHost]:
        """A host that serves the plugin and what it requires, on each database."""
        if request.param != "sqlite" and not _keeps_data(cls.plugin):
            pytest.skip(f"{cls.plugin} keeps nothing in a database")
        with (
            store_settings(request.param) as stores,
            running_host([cls.plugin], settings={**cls.settings, **stores}, strict=True) as host,
        ):
            yield host

    @pytest.fixture(scope="class")
    @classmethod
    def calls(cls, host: RunningHost) -> list[Called]:
        """Every operation of the plugin whose answers end by themselves."""
        return [called for called in calls_of(host, cls.plugin) if not called.streams_events]

    @pytest.fixture(params=_LISTENERS)
    def ask(self, request: pytest.FixtureRequest, host: RunningHost) -> Iterator[Ask]:
        """Sends requests over each listener and version of HTTP."""
        with self.clients(host, **_LISTENERS[request.param]) as client_of:
            yield asking(client_of)

    def test_a_malformed_body_is_refused(self, ask: Ask, calls: list[Called]) -> None:
        """Whatever is wrong with a JSON body, the answer is 400, or the format's status for what is no object.

        So it is for a form in parts that has none.
        """
        for called in calls:
            invalid = {400, called.group.errors.validation_status}
            sent = []
            if called.reads_json:
                sent = [("application/json", each, {400}) for each in _MALFORMED]
                sent += [("application/json", each, invalid) for each in _NO_OBJECT]
            elif called.operation.request is not None and falcon.MEDIA_MULTIPART in called.consumes:
                sent = [(f"{falcon.MEDIA_MULTIPART}; boundary=x", b"no parts", invalid)]
            for kind, body, expected in sent:
                answer = ask(called, content=body, headers={"Content-Type": kind})
                _refused(answer, called, expected | called.denials, body[:20])

    def test_a_body_of_another_type_is_415(self, ask: Ask, calls: list[Called]) -> None:
        """What the operation doesn't read is refused before it is looked at."""
        for called in _with_body(calls):
            for kind in self.other_types:
                if any(fnmatchcase(kind, each) for each in called.consumes):
                    continue
                answer = ask(called, content=b"{}", headers={"Content-Type": kind})
                _refused(answer, called, {415} | called.denials, kind)

    def test_a_body_over_the_limit_is_413_and_others_are_served(self, ask: Ask, calls: list[Called]) -> None:
        """A body above the limit is refused, and the next request is answered. Limits of many MiB are left out."""
        for called in _with_body(calls):
            if called.body_limit > _MOST_SENT:
                continue
            size = called.body_limit + 1
            kind = called.consumes[0].replace("*", "x")
            answer = ask(called, content=b" " * size, headers={"Content-Type": kind})
            _refused(answer, called, {413} | called.denials, f"{size} bytes")
            if called.reads_json:
                _refused(ask(called, content=b"{"), called, {400, *DENIED}, "the next one")

    def test_an_accept_that_excludes_all_is_406(self, ask: Ask, calls: list[Called]) -> None:
        """Nobody is sent what they said they don't take."""
        for called in calls:
            if called.method == "GET" and called.operation.produces and not called.operation.security:
                answer = ask(called, headers={"Accept": "image/x-nothing-makes-this"})
                _refused(answer, called, {406}, "Accept")

    def test_another_method_is_405_and_allow_names_those_that_work(self, ask: Ask, calls: list[Called]) -> None:
        """A known path names its methods, in an error and on OPTIONS."""
        for called in calls:
            for method in {"PUT", "POST", "DELETE", "PATCH"} - called.methods:
                answer = ask(called, method=method, content=b"{}")
                _refused(answer, called, {405}, method)
                assert called.methods <= set(answer.headers["Allow"].split(", ")), called.label
            answer = ask(called, method="OPTIONS")
            assert answer.status_code in {200, 204}, called.label
            assert called.methods <= set(answer.headers["Allow"].split(", ")), called.label

    def test_head_is_get_without_a_body(self, ask: Ask, calls: list[Called]) -> None:
        """HEAD is answered as GET is, and has no content."""
        for called in calls:
            if called.method == "GET":
                head, get = ask(called, method="HEAD"), ask(called)
                assert (head.status_code, head.content) == (get.status_code, b""), called.label
                assert head.headers.get("Content-Type") == get.headers.get("Content-Type"), called.label

    def test_one_trailing_slash_is_the_same_resource(self, ask: Ask, calls: list[Called]) -> None:
        """A literal slash at the end is dropped once."""
        for called in calls:
            if called.method == "GET" and called.path != "/":
                answer = ask(called, path=f"{called.path}/")
                assert answer.status_code == ask(called).status_code, called.label

    def test_unknown_paths_below_the_prefix_are_the_plugins_404(self, ask: Ask, calls: list[Called]) -> None:
        """The prefix's owner answers for all that is below it, in its own format."""
        for called in calls:
            if called.group.prefix != "/":
                answer = ask(called, method="GET", path=f"{called.group.prefix}/no/such/path/here")
                _refused(answer, called, {404, *DENIED}, "an unknown path")

    def test_minor_versions_are_told_and_chosen(self, ask: Ask, calls: list[Called]) -> None:
        """Each response names the version that served it. An unknown one is 400, which names the known."""
        for called in calls:
            spoken = called.group.versions
            if not spoken or called.method != "GET":
                continue
            newest = max(spoken, key=lambda version: [int(part) for part in version.split(".")])
            for sent, told in [({}, newest), *(({"API-Version": each}, each) for each in spoken)]:
                answer = ask(called, headers=sent)
                assert answer.headers["API-Version"] == told, called.label
                assert "API-Version" in answer.headers["Vary"], called.label
            for wrong in ("0.0", "nonsense", "999.1"):
                answer = ask(called, headers={"API-Version": wrong})
                _refused(answer, called, {400}, wrong)
                assert newest in answer.text, called.label

    def test_every_answer_carries_a_request_id_and_nosniff(self, ask: Ask, calls: list[Called]) -> None:
        """A well-formed request id is kept, another is replaced."""
        for called in calls:
            if called.method == "GET":
                assert ask(called).headers["X-Content-Type-Options"] == "nosniff", called.label
                for sent, kept in (("a.b-1", True), ("a b", False), ("x" * 129, False)):
                    told = ask(called, headers={"X-Request-ID": sent}).headers["X-Request-ID"]
                    assert (told == sent) is kept, called.label


def conformance(
    plugin: str,
    settings: Mapping[str, Any] | None = None,
    other_types: Collection[str] = _OTHER_TYPES,
    earlier: Path | None = None,
    prepare: Callable[[RunningHost, httpx.Client], None] = unprepared,
) -> type[Conformance]:
    """Return tests of what holds for every plugin, made of what it declares. Assign them to a name that pytest finds.

        TestConformance = conformance("notes")

    They run on a host with the plugin and what it requires, over HTTP/1.1, HTTPS and HTTP/2, and on SQLite and
    PostgreSQL where it has a store.

    Args:
        plugin: The plugin's name.
        settings: What `plughost.toml` would hold, such as a rate limit that the tests don't reach.
        other_types: Media types that its operations with a body don't read.
        earlier: The wheel of a published version, to try the upgrade from. Examples of operations fill its stores.
        prepare: Called with the host and each client before it asks, such as to sign in where the plugin lets in
            nobody else.
    """
    given = {"plugin": plugin, "settings": dict(settings or {}), "other_types": tuple(other_types), "earlier": earlier}
    return type("TestConformance", (Conformance,), {**given, "prepare": staticmethod(prepare)})


def asking(client_of: Callable[[str], httpx.Client]) -> Ask:
    """Return what sends a request of an operation, and refuses answers that are never right."""

    def ask(called: Called, *, method: str = "", path: str = "", **sent: Any) -> httpx.Response:
        answer = client_of(called.site).request(method or called.method, path or called.path, **sent)
        assert answer.status_code < 500, f"{called.label}: {answer.status_code} {answer.text[:200]}"
        assert answer.status_code != 429, f"{called.label}: 429. {_RAISE_THE_LIMIT}"
        return answer

    return ask


def _keeps_data(plugin: str) -> bool:
    """Tell whether a plugin, or one that it requires, has a store."""
    with running_host([plugin], settings={"sites": {}}) as host:
        return any(each.declared.stores for each in host.host.view.plugins if each.state == "active")


def _with_body(calls: list[Called]) -> Iterator[Called]:
    return (called for called in calls if called.consumes)


def _refused(answer: httpx.Response, called: Called, expected: Collection[int], what: object) -> None:
    """Check an error: its status, that it is in the group's format, and that it says something."""
    told = f"{called.label} with {what!r}: {answer.status_code} {answer.text[:200]}"
    assert answer.status_code in expected, told
    assert answer.headers["Content-Type"].partition(";")[0] == called.error_type, told
    assert answer.text.strip(), told
