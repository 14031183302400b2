"""The documentation's pages over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plughost.testing import plugin_distribution, running_host
from plughost_docs.plugin import Plugin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site of three files, and a file outside it."""
    for name in ("html/index.html", "html/operators/tls.html", "html/_static/scripts/page.js", "secret.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"this is {name}")
    return tmp_path / "html"


@pytest.fixture
def client(folder: Path) -> Iterator[httpx.Client]:
    """A client of a development host that serves the site."""
    with running_host(distributions=[plugin_distribution("docs", Plugin(folder))]) as host, host.client() as opened:
        yield opened


@pytest.mark.parametrize("path", ["/q/docs", "/q/docs/"])
def test_the_prefix_redirects_to_the_front_page(client: httpx.Client, path: str) -> None:
    """With or without a slash at the end, relative links work."""
    answer = client.get(path)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/q/docs/index.html")


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("index.html", "text/html; charset=utf-8"),
        ("operators/tls.html", "text/html; charset=utf-8"),
        ("_static/scripts/page.js", "text/javascript; charset=utf-8"),
    ],
)
def test_files_have_their_type_and_a_strict_policy(client: httpx.Client, name: str, media_type: str) -> None:
    """A file has its media type, allows the browser requests to this host only, and is sent once."""
    answer = client.get(f"/q/docs/{name}")
    assert (answer.status_code, answer.text, answer.headers["Content-Type"]) == (
        200,
        f"this is html/{name}",
        media_type,
    )
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert client.get(f"/q/docs/{name}", headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


@pytest.mark.parametrize(
    "path",
    ["nothing.html", "operators", "..%2Fsecret.html", "%2E%2E/secret.html", "%2Fetc%2Fpasswd", "a%00b", "a/b/c/d"],
)
def test_nothing_else_is_served(client: httpx.Client, path: str) -> None:
    """A path that is no file of the folder is a 404, whatever it points to."""
    assert client.get(f"/q/docs/{path}").status_code == 404


def test_a_missing_site_is_explained(tmp_path: Path) -> None:
    """Without pages, a 404 tells how to build them, and the host is healthy."""
    brought = [plugin_distribution("docs", Plugin(tmp_path / "html"))]
    with running_host(distributions=brought, strict=True) as host, host.client() as client:
        answer = client.get("/q/docs/index.html")
    assert answer.status_code == 404
    assert "./dev docs" in answer.json()["detail"]


@pytest.mark.parametrize("enabled", [None, True])
def test_without_dev_a_setting_is_needed(folder: Path, enabled: bool | None) -> None:
    """A host that is not in development mounts the pages only if the settings say so."""
    table = {} if enabled is None else {"enabled": enabled}
    settings = {"tls": {"self_signed": True}, "plugins": {"docs": table}}
    brought = [plugin_distribution("docs", Plugin(folder))]
    with running_host(distributions=brought, dev=False, settings=settings) as host:
        mounted = [group.prefix for site in host.host.view.sites.values() for _, group in site.groups]
    assert mounted == (["/q/docs"] if enabled else [])
