"""CORS: pages of which other origins may use a site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from plughost._settings.models import CORSSettings

from .conftest import NotesPlugin, notes_host

if TYPE_CHECKING:
    import falcon
    import httpx

APP = "https://app.example.org"
PREFLIGHT = {"Origin": APP, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}


@contextmanager
def client_of(limit: str | None = None, **cors: Any) -> Iterator[httpx.Client]:
    """Return a client of a host with these CORS settings."""
    sites = {"main": {"cors": cors}} if cors else {}
    with notes_host(NotesPlugin(limit), sites=sites) as host, host.client() as client:
        yield client


def test_by_default_no_other_origin_is_allowed() -> None:
    """There are no header fields of CORS, and OPTIONS is an ordinary request."""
    with client_of() as client:
        for answer in (client.get("/notes", headers={"Origin": APP}), client.options("/notes", headers=PREFLIGHT)):
            assert not any(name.startswith("access-control") for name in answer.headers)
            assert "Origin" not in answer.headers["Vary"]


def test_an_allowed_page_reads_answers_and_errors_alike() -> None:
    """Every answer to an allowed origin says so, with the readable headers; Vary makes caches separate origins."""
    with client_of("100/hour", origins=[APP], expose=["X-Own"]) as client:
        for path, status in (("/notes", 200), ("/notes/nothing", 404), ("/elsewhere", 404)):
            answer = client.get(path, headers={"Origin": APP})
            assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (status, APP)
            assert "Access-Control-Allow-Credentials" not in answer.headers
            assert "Origin" in answer.headers["Vary"]
            exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
            assert {"API-Version", "RateLimit-Remaining", "Retry-After", "X-Request-ID", "X-Own"} <= set(exposed)
        failed = client.put("/notes", headers={"Origin": APP})
        assert (failed.status_code, failed.headers["Access-Control-Allow-Origin"]) == (500, APP)


def test_a_preflight_is_answered_and_not_counted() -> None:
    """It has no body and no credentials, and doesn't count for a rate limit."""
    with client_of("1/hour", origins=[APP], max_age=60) as client:
        for _ in range(3):
            answer = client.options("/notes", headers=PREFLIGHT)
            assert (answer.status_code, answer.content) == (204, b"")
            assert answer.headers["Access-Control-Allow-Origin"] == APP
            assert "PUT" in answer.headers["Access-Control-Allow-Methods"].split(", ")
            assert answer.headers["Access-Control-Allow-Headers"] == "content-type"
            assert answer.headers["Access-Control-Max-Age"] == "60"
        assert client.get("/notes").status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example.org", "https://app.example.org.evil.org", "null", "http://app.example.org"]
)
def test_another_page_gets_no_permission(origin: str) -> None:
    """An origin that is not in the settings gets no header that allows it, preflight or not."""
    with client_of(origins=[APP]) as client:
        for answer in (
            client.get("/notes", headers={"Origin": origin}),
            client.options("/notes", headers={**PREFLIGHT, "Origin": origin}),
        ):
            assert not any(name.startswith("access-control") for name in answer.headers)
            assert "Origin" in answer.headers["Vary"]


def test_an_answer_without_an_origin_varies_by_origin() -> None:
    """A shared cache must not send it to a page of another origin."""
    with client_of(origins=[APP]) as client:
        answer = client.get("/notes")
        assert "Origin" in answer.headers["Vary"]
        assert "Access-Control-Allow-Origin" not in answer.headers


class Varies:
    """A resource with its own Vary."""

    def __init__(self, vary: str) -> None:
        """Store the value."""
        self.vary = vary

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.set_header("Vary", self.vary)
        resp.media = {}


@pytest.mark.parametrize("vary", ["Origin", "Accept, origin", "X-Origin"])
def test_vary_names_origin_once(vary: str) -> None:
    """This holds if the resource names it, too; a field name that only looks similar doesn't count."""
    sites = {"main": {"cors": {"origins": [APP]}}}
    with notes_host(NotesPlugin(None, resource=Varies(vary)), sites=sites) as host, host.client() as client:
        named = client.get("/notes").headers["Vary"].lower().split(", ")
    assert named.count("origin") == 1


def test_all_origins_are_allowed_without_credentials() -> None:
    """A star is answered by a star, which caches may share."""
    with client_of(origins=["*"]) as client:
        answer = client.get("/notes", headers={"Origin": "https://anybody.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "Origin" not in answer.headers["Vary"]
        assert client.options("/notes", headers=PREFLIGHT).status_code == 204


def test_credentials_are_allowed_to_named_origins() -> None:
    """Pages may send cookies if the settings say so."""
    with client_of(origins=[APP], credentials=True) as client:
        for answer in (client.get("/notes", headers={"Origin": APP}), client.options("/notes", headers=PREFLIGHT)):
            assert answer.headers["Access-Control-Allow-Credentials"] == "true"
            assert answer.headers["Access-Control-Allow-Origin"] == APP


@pytest.mark.parametrize(
    "settings",
    [
        {"origins": ["*"], "credentials": True},
        {"origins": ["*", APP]},
        {"origins": [f"{APP}/"]},
        {"origins": ["app.example.org"]},
        {"origins": ["https://APP.example.org"]},
        {"origins": ["null"]},
    ],
)
def test_unsafe_or_useless_settings_are_refused(settings: dict[str, Any]) -> None:
    """A star with credentials lets any page act as the user; a malformed origin would silently match none."""
    with pytest.raises(ValidationError):
        CORSSettings(**settings)
