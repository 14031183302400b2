"""The hooks: everything that the host asks of a plugin.

The host calls each hook separately for each plugin, at build time only, never while it answers a request.
A plugin implements the hooks that it needs, with `@plughost.hookimpl`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    import click
    from pydantic import BaseModel

    from plughost._api.context import PluginContext
    from plughost._api.declarations import Check, Middleware, Observer, Page, Principal, RouteGroup, Store
    from plughost._api.jobs import Job
    from plughost.http._request import Request

PROJECT: Final = "plughost"


def documented_hooks() -> dict[str, str]:
    """Return the hooks by name, each with its documentation."""
    hooks = {name: hook for name, hook in globals().items() if hasattr(hook, f"{PROJECT}_spec")}
    return {name: inspect.getdoc(hook) or "" for name, hook in hooks.items()}


hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_settings() -> type[BaseModel]:
    """Return the model of the plugin's table `[plugins.<name>]`. Called at load."""
    raise NotImplementedError


@hookspec
def register_stores(context: PluginContext[Any]) -> Iterable[Store]:
    """Return the stores that the plugin offers. Called first at build. They open after all hooks have returned."""
    raise NotImplementedError


@hookspec
def register_authenticator(context: PluginContext[Any]) -> Callable[[Request], Principal | None] | None:
    """Return a function from a request to its principal or None. Called at build, at most one wins."""
    raise NotImplementedError


@hookspec
def register_middleware(context: PluginContext[Any]) -> Iterable[Middleware]:
    """Return the middleware that the plugin adds. Called at build."""
    raise NotImplementedError


@hookspec
def register_routes(context: PluginContext[Any]) -> Iterable[RouteGroup]:
    """Return the plugin's route groups. Called at build."""
    raise NotImplementedError


@hookspec
def register_observers(context: PluginContext[Any]) -> Iterable[Observer]:
    """Return the plugin's observers of answered requests. Called at build."""
    raise NotImplementedError


@hookspec
def register_checks(context: PluginContext[Any]) -> Iterable[Check]:
    """Return the plugin's health checks. Called at build."""
    raise NotImplementedError


@hookspec
def register_jobs(context: PluginContext[Any]) -> Iterable[Job]:
    """Return the plugin's scheduled jobs. Called at build. The first runs begin after `started`."""
    raise NotImplementedError


@hookspec
def register_pages(context: PluginContext[Any]) -> Iterable[Page]:
    """Return the plugin's pages for the development console. Called at build."""
    raise NotImplementedError


@hookspec
def register_commands() -> Iterable[click.Command]:
    """Return the commands that appear under `plughost <plugin> ...`. Called by the command line.

    A single command with the plugin's name is called as `plughost <plugin>` itself.
    """
    raise NotImplementedError


@hookspec
def started(context: PluginContext[Any]) -> None:
    """Start what runs while the plugin serves. Called after its generation was swapped in."""


@hookspec
def draining(context: PluginContext[Any]) -> None:
    """End long streams, since the plugin's last requests are being answered. Called before the host waits for them."""


@hookspec
def stopping(context: PluginContext[Any]) -> None:
    """Release what the plugin holds, since it serves no more. Called after its last request was answered."""
