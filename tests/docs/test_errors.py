"""The reference of errors matches the code."""

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
def errors_reference() -> ModuleType:
    """The module that generates the page."""
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


def test_the_reference_of_errors_is_up_to_date(errors_reference: ModuleType) -> None:
    """If it is outdated, `python tests/docs/update_references.py` updates it."""
    assert PAGE.read_text(encoding="utf-8") == errors_reference.reference()


def test_every_row_has_text(errors_reference: ModuleType) -> None:
    """No cell consists only of placeholders."""
    cells = [
        cell.strip(" `")
        for line in errors_reference.reference().splitlines()
        if line[:1] == "|"
        for cell in line.split("|")
    ]
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
def test_an_actual_error_is_on_the_page(host: RunningHost, method: str, path: str, headers: dict[str, str]) -> None:
    """A row of it has the error's status, title and detail."""
    with host.client() as client:
        problem = client.request(method, path, headers=headers).json()
    status, title, detail = str(problem["status"]), problem["title"], problem["detail"]
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {status} |")]
    titles = [cells[2] for line in lines if _fits((cells := line.split("|"))[-2], detail)]
    assert title in {each.strip(" `") or title for each in titles}, problem


def _fits(shown: str, text: str) -> bool:
    """Return whether a text matches a cell, with any text for its placeholders."""
    return re.fullmatch(re.sub(r"<[^<>]+>", ".+", re.escape(shown.strip("` "))), text) is not None
