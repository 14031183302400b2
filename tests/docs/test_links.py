"""The check of external links distinguishes broken links from unverifiable ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plughost.testing import RunningHost, running_host

PROGRAM = Path(__file__).parent / "links.py"
NOBODY = "http://127.0.0.1:1/"


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A server."""
    with running_host(["messages", "library-auth"]) as running:
        yield running


def check(page: Path, text: str) -> tuple[int, str]:
    """Return the exit code for a page, and the output."""
    page.write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, str(PROGRAM), str(page)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_link_with_a_404_is_broken(host: RunningHost, tmp_path: Path) -> None:
    """The exit code is 1, and the broken link's page is named; a valid link is not reported."""
    well, broken = f"{host.url()}/messages", f"{host.url()}/nothing"
    code, output = check(tmp_path / "page.md", f"[one]({well}#part) and <{broken}>, `{NOBODY}`")
    assert code == 1
    assert f"BROKEN: {broken}: 404 Not Found (in {tmp_path / 'page.md'})" in output
    assert "2 links: 1 well, 1 broken, 0 unknown." in output


def test_an_unreachable_server_fails_nothing(tmp_path: Path) -> None:
    """Without a network, all links are reported as unknown, and the exit code is 0."""
    code, output = check(tmp_path / "page.md", f"[one]({NOBODY})\n```\n<http://127.0.0.1:2/>\n```\n")
    assert code == 0
    assert f"unknown: {NOBODY}: " in output
    assert "is there a network here?" in output


def test_a_server_that_refuses_programs_fails_nothing(host: RunningHost, tmp_path: Path) -> None:
    """A link that requires credentials may still be valid."""
    link = f"{host.url('library')}/mylibrary/setup/secured"
    code, output = check(tmp_path / "page.md", f"[one]({link})")
    assert code == 0
    assert f"unknown: {link}: 401 Unauthorized" in output
