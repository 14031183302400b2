"""Answers without a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import falcon
import pytest

from plughost import hookimpl
from plughost._api.declarations import Operation, Route, RouteGroup
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from plughost._api.context import PluginContext


class Nothing:
    """A resource that always answers 404."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer 404 without a body."""
        resp.status = falcon.HTTP_404


class NothingPlugin:
    """A plugin with this resource."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        return [RouteGroup(prefix="/nothing", routes=(Route("", Nothing(), {"GET": Operation(summary="Get")}),))]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_empty_body_has_no_content_type(method: str) -> None:
    """On either engine, the answer has a length of zero and no Content-Type."""
    with running_host(distributions=[plugin_distribution("nothing", NothingPlugin())]) as host:
        for scheme in ("http", "https"):
            with host.client(scheme=scheme) as client:
                answer = client.request(method, "/nothing")
            assert (answer.status_code, answer.content) == (404, b"")
            assert answer.headers["content-length"] == "0"
            assert "content-type" not in answer.headers
