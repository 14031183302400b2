"""What a host's listeners tell: their limit of connections, and where HTTPS is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.host.plugins import Plugin, Speaker, group_of

from plughost.http import Request, secure_url
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon


class _Located:
    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with the resource's address over HTTPS."""
        resp.media = secure_url(req)


def test_plain_http_names_the_port_of_https() -> None:
    """A resource that must not be asked in the open can say where else, even if the system chose the port."""
    plugin = Plugin(register_routes=lambda context: [group_of(_Located())])
    with running_host(distributions=[plugin_distribution("located", plugin)]) as host, host.client() as client:
        port = httpx.URL(host.url("main", "https")).port
        url = client.base_url.copy_with(scheme="https", port=port, path="/say")
        assert client.get("/say").json() == str(url)


@pytest.mark.parametrize(("limit", "warned"), [(8, False), (sys.maxsize, True)])
def test_a_connection_limit_beyond_the_systems_is_told(
    caplog: pytest.LogCaptureFixture, limit: int, warned: bool
) -> None:
    """The warning names the setting and how many files the system lets the process open."""
    settings = {"sites": {"main": {"connection_limit": limit}}}
    with running_host(distributions=[plugin_distribution("a", Speaker("hello"))], settings=settings):
        assert ("sites.main.connection_limit, since this process may open" in caplog.text) == warned
