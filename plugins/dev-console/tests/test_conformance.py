"""The tests that every plugin must pass (CONTRACT 2), in a session of the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost.testing import RunningHost, conformance

if TYPE_CHECKING:
    import httpx


def enter(host: RunningHost, client: httpx.Client) -> None:
    """Open the console with a new link, and send the headers of its pages."""
    link = host.host.view.answer_query("dev-console", "link")["link"]
    assert client.get("/q/dev/open", params={"link": link.partition("link=")[2]}).status_code == 303
    client.headers["Origin"] = str(client.base_url).rstrip("/")


TestConformance = conformance("dev-console", prepare=enter)
