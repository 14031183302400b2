"""Health checks of a host at `/q/health`, in the shape of MicroProfile Health (CONTRACT 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, Field

from plughost import Check, Health, Operation, Response, Route, RouteGroup, hookimpl
from plughost_health.checks import own_checks
from plughost_health.runner import CheckRunner
from plughost_health.settings import Settings

if TYPE_CHECKING:
    import falcon

    from plughost import PluginContext
    from plughost.http import Request

PREFIX: Final = "/q/health"
_SUMMARIES: Final = {
    "": "Tell what every health check finds",
    "live": "Tell whether the process is well, or should be restarted",
    "ready": "Tell whether the host takes requests, or should be left out for now",
    "started": "Tell whether the host has started",
}


class CheckResult(BaseModel):
    """The result of one check."""

    name: str = Field(examples=["store messages"])
    status: Literal["UP", "DOWN"]
    data: dict[str, object] = Field(default_factory=dict)


class HealthReport(BaseModel):
    """The overall status, and the results of the checks if the client may see them."""

    status: Literal["UP", "DOWN"]
    checks: list[CheckResult]


class Probe:
    """Answers 200 when every check is up, else 503."""

    def __init__(self, runner: CheckRunner, kind: str | None, *, public: bool) -> None:
        """Serve the checks of a kind, or all; `public` shows the results of each check to everybody."""
        self._runner = runner
        self._kind = kind
        self._public = public

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the results of the checks, or 503 if one is down."""
        found = self._runner.run(self._kind)
        up = all(health.up for health in found.values())
        resp.status = 200 if up else 503
        resp.cache_control = ["no-store"]
        checks = found.items() if self._public or req.may_look else ()
        resp.media = {"status": _status(up), "checks": [_as_json(name, health) for name, health in checks]}


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model that validates `[plugins.health]`."""
    return Settings


@hookimpl
def register_routes(context: PluginContext[Settings]) -> list[RouteGroup]:
    """Mount the probes on the site `main`."""
    runner = CheckRunner(context.host, context.settings)
    routes = tuple(
        Route(
            f"/{kind}" if kind else "",
            Probe(runner, kind or None, public=context.settings.public),
            {"GET": _operation(kind, summary)},
        )
        for kind, summary in _SUMMARIES.items()
    )
    return [RouteGroup(prefix=PREFIX, routes=routes, title="Health")]


@hookimpl
def register_checks(context: PluginContext[Settings]) -> list[Check]:
    """Return the checks of the host as a whole, which join those of the other plugins."""
    return own_checks(context)


def _as_json(name: str, health: Health) -> dict[str, object]:
    fields: dict[str, object] = {"name": name, "status": _status(health.up)}
    return {**fields, "data": dict(health.data)} if health.data else fields


def _status(up: bool) -> str:
    return "UP" if up else "DOWN"


def _operation(kind: str, summary: str) -> Operation:
    up = Response(description="Every check is up.", model=HealthReport)
    down = Response(description="A check is down.", model=HealthReport)
    return Operation(
        id=f"getHealth{kind.capitalize()}",
        summary=summary,
        description="The status says it to orchestrators and load balancers. Strangers read UP or DOWN and no checks.",
        responses={200: up, 503: down},
    )
