"""Unit tests of Accept, minor versions and error formats."""

from __future__ import annotations

import json
import tracemalloc

import falcon
import pytest

from plughost._apps.mounted import Versions
from plughost._servers.responses import engine_error
from plughost.http import PLAIN_TEXT, PROBLEM_DETAILS, Invalid, Problem, Violation
from plughost.http._response import best_offer
from plughost.http._routing import MAX_ID, parse_id

JSON, HAL = "application/json", "application/hal+json"


@pytest.mark.parametrize(
    ("accept", "best"),
    [
        ("*/*", JSON),
        (HAL, HAL),
        (f"{JSON};q=0.5, {HAL}", HAL),
        (f"{HAL};q=0.5, */*;q=0.4", HAL),
        (f"*/*, {JSON};q=0", HAL),
        (f"{HAL}, {JSON}", HAL),
        (f"{JSON}, {HAL}", JSON),
        (f"*/*, {HAL}", HAL),
        (f"{HAL}, application/*", HAL),
        (f"{HAL};q=0.9, {JSON}, */*;q=0.1", JSON),
        ("application/*;q=0.1", JSON),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", JSON),
        ("text/html", None),
        (f"{JSON};q=0, {HAL};q=0.0", None),
        ("*/*;q=nan", JSON),
        ("*/*;q=inf", JSON),
        ("*/*;q=-1", JSON),
        ("*/*;q=1e-3", JSON),
        (f"{HAL};q=nan, {JSON};q=0.1", JSON),
        ("*/json", JSON),
        ("*/json;q=0", JSON),
        ("text/ html", JSON),
        ("/", JSON),
        (f"{HAL};profile=x;q=0.9, {JSON};q=0.1", HAL),
        (f"{HAL} ; Q=0.2 , {JSON} ; q = 0.1", HAL),
        ("," * 5000, JSON),
        (f"{JSON};q=0.1, {HAL};q=0.2, {JSON};q=0.3", JSON),
        (f"application/*;q=0.1, */*;q=0.9, {HAL};q=0.2", HAL),
    ],
)
def test_the_best_offer(accept: str, best: str | None) -> None:
    """The most specific range of an offer decides, then its weight, then what is named first; malformed ones don't."""
    assert best_offer(accept, (JSON, HAL)) == best


def test_ranges_of_clients_are_not_kept() -> None:
    """However many media ranges hostile clients send, they take a few MiB at most."""
    tracemalloc.start()
    try:
        for number in range(150):
            best_offer(",".join(f"a/{number}-{each}" for each in range(1000)), (JSON,))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4 * 2**20


def test_versions_are_ordered_by_number() -> None:
    """1.10 is newer than 1.9, and a major version stands for its newest minor version."""
    versions = Versions(["2.0", "1.10", "1.9"])
    assert versions.supported == ("1.9", "1.10", "2.0")
    assert [versions.choose(asked) for asked in (None, "1", "1.9", " 2 ")] == ["2.0", "1.10", "1.9", "2.0"]


@pytest.mark.parametrize("asked", ["", "3", "1.1", "1.", ".1", "-1", "1.9.0", "latest", "9" * 5000])
def test_an_unknown_version_is_refused_with_the_known_ones(asked: str) -> None:
    """The error names every version that is supported."""
    with pytest.raises(falcon.HTTPBadRequest) as raised:
        Versions(["1.9", "1.10"]).choose(asked)
    assert "1.9, 1.10" in (raised.value.description or "")


@pytest.mark.parametrize("supported", [["1"], ["v1.0"], ["1.0.0"], ["01.0"], ["1.x"], [""]])
def test_malformed_versions_are_refused(supported: list[str]) -> None:
    """A declared version is `major.minor`, without leading zeros."""
    with pytest.raises(ValueError, match="minor version"):
        Versions(supported)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (str(MAX_ID), MAX_ID),
        (str(MAX_ID + 1), None),
        ("0", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("1_0", None),
        (" 1", None),
        ("٣", None),
        ("²", None),
        ("", None),
        ("0x1", None),
        ("9" * 5000, None),
        ("007", 7),
    ],
)
def test_an_id_is_plain_digits(text: str, number: int | None) -> None:
    """Ids are ASCII digits from 1 to 2^63-1; anything else is not found."""
    assert parse_id(text) == number


def test_all_violations_are_reported_together() -> None:
    """Problem details list every violation; plain text has a line for each, and one for the body as a whole."""
    error = Invalid([Violation("name", "must not be blank"), Violation("", "must be an object")])
    problem = Problem.of(error, 422)
    assert json.loads(PROBLEM_DETAILS.render(problem)) == {
        "type": "about:blank",
        "title": "Constraint Violation",
        "status": 422,
        "detail": "name: must not be blank; must be an object",
        "violations": [
            {"field": "name", "message": "must not be blank"},
            {"field": "", "message": "must be an object"},
        ],
    }
    assert PLAIN_TEXT.render(problem) == b"name: must not be blank\nmust be an object"


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (413, "Content Too Large"),
        (414, "URI Too Long"),
        (416, "Range Not Satisfiable"),
        (422, "Unprocessable Content"),
    ],
)
def test_titles_do_not_depend_on_python(status: int, title: str) -> None:
    """They are the phrases of RFC 9110, which differ from those of Python before 3.13."""
    assert Problem.of(falcon.HTTPError(status)).title == title
    assert engine_error(status)[0] == f"{status} {title}"


@pytest.mark.parametrize("error", [falcon.HTTPNotFound(), falcon.HTTPError(599), falcon.HTTPError(418, title="")])
def test_a_problem_always_has_a_title_and_a_detail(error: falcon.HTTPError) -> None:
    """An error without a text gets the phrase of its status."""
    problem = Problem.of(error)
    assert problem.title
    assert problem.detail
