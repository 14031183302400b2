"""An error raised by middleware of a site has the format of the group that the path belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import falcon
import pytest
from tests.host.plugins import Plugin, Says, group_of

from plughost import Middleware
from plughost.http import PLAIN_TEXT
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from plughost.http import Request


class Refuses:
    """Middleware that refuses every request before it is routed."""

    def process_request(self, req: Request, resp: falcon.Response) -> None:
        """Refuse."""
        raise falcon.HTTPForbidden(description="There is no such tenant.")


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/plain", "text/plain; charset=utf-8"),
        ("/plain/none", "text/plain; charset=utf-8"),
        ("/problem", "application/problem+json"),
        ("/elsewhere", "application/problem+json"),
    ],
)
def test_an_error_before_routing_has_the_format_of_its_group(path: str, media_type: str) -> None:
    """Clients of a group get one error format, also from another plugin's middleware."""
    groups = [group_of(Says("a"), "/plain", errors=PLAIN_TEXT), group_of(Says("b"), "/problem")]
    refuses = [Middleware(name="refuses", component=Refuses(), scope="host")]
    installed = [
        plugin_distribution("groups", Plugin(register_routes=lambda context: groups)),
        plugin_distribution("tenant", Plugin(register_middleware=lambda context: refuses)),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (403, media_type)
    assert "There is no such tenant." in answer.text
