"""The test kit's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.testing import Tokens, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon
    import httpx

    from plughost.http import Request


class Door:
    """Answers with the principal."""

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with the principal."""
        assert req.principal is not None
        resp.media = {"name": req.principal.name, "roles": sorted(req.principal.roles)}


class Plugin:
    """A door for editors."""

    @hookimpl
    def register_routes(self) -> list[RouteGroup]:
        """Mount it."""
        enter = Operation(summary="Enter", security=("bearer",), roles=("editor",))
        return [RouteGroup(prefix="/door", routes=(Route("", Door(), {"GET": enter}),))]


def test_a_token_has_the_roles_that_the_test_names() -> None:
    """A token with the role is accepted, one without it is 403, and a foreign or missing token is 401."""
    tokens = Tokens()
    plugins = [plugin_distribution("door", Plugin()), tokens.distribution]
    with running_host(distributions=plugins, strict=True) as host, host.client() as client:

        def enter(headers: dict[str, str] | None) -> httpx.Response:
            return client.get("/door", headers=headers)

        answer = enter(tokens.headers("editor", "reader", name="ada"))
        assert answer.json() == {"name": "ada", "roles": ["editor", "reader"]}
        assert enter(tokens.headers("reader")).status_code == 403
        assert enter(Tokens().headers("editor")).status_code == 401
        assert enter(None).status_code == 401
