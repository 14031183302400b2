"""The conformance suite compares answers with the description by schemathesis, and detects planted faults."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.packages import plugin_entry, write_package

from plughost.testing import RunningHost, Tokens, conformance

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

SAYS = """
import falcon

from plughost import Operation, Response, Route, RouteGroup, hookimpl


class Says:
    def on_get(self, req, resp):
        {answer}


@hookimpl
def register_routes(context):
    said = {{200: Response(description="A word.", model=str)}}
    word = Operation(summary="Say", responses=said, security={security})
    return [RouteGroup(prefix="/says", routes=(Route("", Says(), {{"GET": word}}),))]
"""

STAYS = """
from pydantic import BaseModel, model_validator

from plughost import Operation, Response, Route, RouteGroup, hookimpl
from plughost.http import read_body


class Stay(BaseModel):
    nights: int
    breakfasts: int

    @model_validator(mode="after")
    def sleeps_first(self):
        if self.breakfasts > self.nights:
            raise ValueError("a breakfast needs a night")
        return self


class Stays:
    def on_post(self, req, resp, hotel):
        resp.media = read_body(req, Stay).nights


@hookimpl
def register_routes(context):
    responses = {{200: Response(description="The nights.", model=int){declared}}}
    book = Operation(summary="Book", request=Stay, responses=responses)
    return [RouteGroup(prefix="/stays", routes=(Route("/{{hotel:int}}", Stays(), {{"POST": book}}),))]
"""


@pytest.mark.parametrize(
    ("name", "answer", "found"),
    [
        ("planted-word", 'resp.media = "word"', ""),
        ("planted-number", "resp.media = 5", "is not of type"),
        ("planted-teapot", "raise falcon.HTTPError(418)", "Undocumented status code"),
    ],
)
def test_an_undeclared_answer_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, answer: str, found: str
) -> None:
    """The failure names a body or status that a plugin doesn't declare; declared ones pass."""
    _check(tmp_path, monkeypatch, name, SAYS.format(answer=answer, security=()), found)


@pytest.mark.parametrize(
    ("name", "answer", "found"),
    [("secured-word", 'resp.media = "word"', ""), ("secured-number", "resp.media = 5", "is not of type")],
)
def test_an_undeclared_answer_to_a_user_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, answer: str, found: str
) -> None:
    """The requests have the headers that `prepare` gives a client, such as a token."""
    tokens = Tokens()

    def enter(_host: RunningHost, client: httpx.Client) -> None:
        client.headers.update(tokens.headers("user"))

    source = SAYS.format(answer=answer, security=("bearer",))
    _check(tmp_path, monkeypatch, name, source, found, prepare=enter, beside=[tokens.distribution])


@pytest.mark.parametrize(
    ("name", "declared", "found"),
    [
        ("planted-rule", "", "Schema-valid request rejected"),
        ("declared-rule", ', 400: Response(description="More breakfasts than nights.")', ""),
    ],
)
def test_a_rule_that_no_schema_expresses_is_declared_by_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, declared: str, found: str
) -> None:
    """An operation that declares the status of invalid input may refuse what its schema allows; others may not."""
    _check(tmp_path, monkeypatch, name, STAYS.format(declared=declared), found)


def _check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, found: str, **options: Any) -> None:
    """Run the test on a plugin of one module: it names the plugin and what is `found`, or passes."""
    monkeypatch.syspath_prepend(tmp_path)
    module = name.replace("-", "_")
    write_package(tmp_path, name, {f"{module}.py": source}, entry_points=plugin_entry(name, module))
    failure = rf"(?s){name} answers otherwise than it declares.*{found}"
    with pytest.raises(AssertionError, match=failure) if found else nullcontext():
        conformance(name, **options)().test_every_answer_is_as_described(tmp_path)
