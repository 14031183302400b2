"""The reference of errors is what the code can say."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from plughost.testing import RunningHost, running_host

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "errors.md"


@pytest.fixture(scope="module")
def made() -> ModuleType:
    """What makes the page."""
    spec = importlib.util.spec_from_file_location("errors_reference", HERE / "errors_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host with a service."""
    with running_host(["messages"]) as running:
        yield running


def test_the_reference_of_errors_is_made_of_the_code(made: ModuleType) -> None:
    """Where it has drifted, `python tests/docs/update_references.py` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == made.reference()


def test_every_row_says_something(made: ModuleType) -> None:
    """No cell holds nothing but names of what varies."""
    cells = [cell.strip(" `") for line in made.reference().splitlines() if line[:1] == "|" for cell in line.split("|")]
    assert [cell for cell in cells if cell and not re.sub(r"<[^<>]*>", "", cell).strip(" .:;,")] == []


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/nowhere", {}),
        ("PATCH", "/messages", {}),
        ("POST", "/messages", {"Content-Type": "text/plain"}),
        ("GET", "/messages", {"Accept": "image/png"}),
        ("GET", "/messages", {"API-Version": "9.9"}),
        ("POST", "/messages", {"Sec-Fetch-Site": "cross-site"}),
    ],
    ids=str,
)
def test_what_a_host_answers_is_on_the_page(host: RunningHost, method: str, path: str, headers: dict[str, str]) -> None:
    """Status, title and detail of an error are a row of it."""
    with host.client() as client:
        problem = client.request(method, path, headers=headers).json()
    status, title, detail = str(problem["status"]), problem["title"], problem["detail"]
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {status} |")]
    titles = [cells[2] for line in lines if _fits((cells := line.split("|"))[-2], detail)]
    assert title in {each.strip(" `") or title for each in titles}, problem


def _fits(shown: str, text: str) -> bool:
    """Return whether a text is what a cell shows, with something in the place of what varies."""
    return re.fullmatch(re.sub(r"<[^<>]+>", ".+", re.escape(shown.strip("` "))), text) is not None
