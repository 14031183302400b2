"""Health checks of a host at `/q/health`, in the shape of MicroProfile Health (CONTRACT 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, Field

from plughost import Check, Operation, Response, Route, RouteGroup, hookimpl
from plughost_health.checks import HOST, own_checks
from plughost_health.runner import CheckRunner
from plughost_health.settings import Settings

if TYPE_CHECKING:
    import falcon

    from plughost import PluginContext
    from plughost.http import Request

PREFIX: Final = "/q/health"
_SUMMARIES: Final = {
    "live": "Tell whether the process is well, or should be restarted",
    "ready": "Tell whether the host takes requests, or should be left out for now",
    "started": "Tell whether the host has started",
}


class CheckResult(BaseModel):
    """The result of one check."""

    name: str = Field(examples=["store messages"])
    status: Literal["UP", "DOWN"]
    data: dict[str, object] = {}


class HealthReport(BaseModel):
    """The overall status, and the results of the checks if the client may see them."""

    status: Literal["UP", "DOWN"]
    checks: list[CheckResult]


class Probe:
    """Answers 200 when every check is up, else 503."""

    def __init__(self, runner: CheckRunner, kind: str | None, *, public: bool) -> None:
        """Serve the checks of a kind.

        Args:
            runner: Runs the checks.
            kind: The kind, or None for all.
            public: Whether everybody sees the results of each check.
        """
        self._runner = runner
        self._kind = kind
        self._public = public

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the results of the checks, or 503 if one is down."""
        found = self._runner.run(self._kind)
        up = all(each.health.up for each in found)
        resp.status = 200 if up else 503
        resp.cache_control = ["no-store"]
        checks = [each.as_json() for each in found] if self._public or req.may_look else []
        resp.media = {"status": "UP" if up else "DOWN", "checks": checks}


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model that validates `[plugins.health]`."""
    return Settings


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the probes on the site `main`."""
    settings = context.settings
    runner = CheckRunner(lambda: context.host.checks, timeout=settings.timeout, keep=settings.cache, always=[HOST])
    public = settings.public
    routes = [
        Route("", Probe(runner, None, public=public), {"GET": _operation("", "Tell what every health check finds")})
    ]
    routes += [
        Route(f"/{kind}", Probe(runner, kind, public=public), {"GET": _operation(kind, summary)})
        for kind, summary in _SUMMARIES.items()
    ]
    return [RouteGroup(prefix=PREFIX, routes=tuple(routes), title="Health")]


@hookimpl
def register_checks(context: PluginContext[Settings]) -> list[Check]:
    """Return the checks of the host as a whole, which join those of the other plugins."""
    return own_checks(context)


def _operation(kind: str, summary: str) -> Operation:
    up = Response(description="Every check is up.", model=HealthReport)
    down = Response(description="A check is down.", model=HealthReport)
    return Operation(
        id=f"getHealth{kind.capitalize()}",
        summary=summary,
        description="The status says it to orchestrators and load balancers. Strangers read UP or DOWN and no checks.",
        responses={200: up, 503: down},
    )
