"""The hooks: everything that the host asks a plugin for.

Each is called on its own for each plugin, at build time only. None is called while a request is answered.
A plugin implements those that it needs, with `@plughost.hookimpl`, and leaves the rest out.
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
WITHOUT_CONTEXT: Final = frozenset({"register_settings", "register_commands"})


def documented_hooks() -> dict[str, str]:
    """Return the hooks by name, each with its documentation."""
    hooks = {name: hook for name, hook in globals().items() if hasattr(hook, f"{PROJECT}_spec")}
    return {name: inspect.getdoc(hook) or "" for name, hook in hooks.items()}


hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_settings() -> type[BaseModel]:
    """Return the model of the plugin's table `[plugins.<name>]`; called at load."""
    raise NotImplementedError


@hookspec
def register_stores(context: PluginContext[Any]) -> Iterable[Store]:
    """Return the stores that the plugin offers; called at build, first; they open when all hooks have returned."""
    raise NotImplementedError


@hookspec
def register_authenticator(context: PluginContext[Any]) -> Callable[[Request], Principal | None] | None:
    """Return a callable that names the principal behind a request, or None; called at build, at most one wins."""
    raise NotImplementedError


@hookspec
def register_middleware(context: PluginContext[Any]) -> Iterable[Middleware]:
    """Return the middleware that the plugin adds; called at build."""
    raise NotImplementedError


@hookspec
def register_routes(context: PluginContext[Any]) -> Iterable[RouteGroup]:
    """Return the plugin's route groups; called at build."""
    raise NotImplementedError


@hookspec
def register_observers(context: PluginContext[Any]) -> Iterable[Observer]:
    """Return who is to be told of the requests that the host answered; called at build."""
    raise NotImplementedError


@hookspec
def register_checks(context: PluginContext[Any]) -> Iterable[Check]:
    """Return the plugin's health checks; called at build."""
    raise NotImplementedError


@hookspec
def register_jobs(context: PluginContext[Any]) -> Iterable[Job]:
    """Return what the plugin does by the clock; called at build. The first runs begin after `started`."""
    raise NotImplementedError


@hookspec
def register_pages(context: PluginContext[Any]) -> Iterable[Page]:
    """Return the plugin's pages for the development console; called at build."""
    raise NotImplementedError


@hookspec
def register_commands() -> Iterable[click.Command]:
    """Return the commands that appear under `plughost <plugin> ...`; called by the command line.

    A single one that is named as the plugin is called as `plughost <plugin>` itself.
    """
    raise NotImplementedError


@hookspec
def started(context: PluginContext[Any]) -> None:
    """Take note that the plugin serves from now on; called after its generation was swapped in."""


@hookspec
def draining(context: PluginContext[Any]) -> None:
    """Take note that the plugin's last requests are being answered: end long streams; called before the host waits."""


@hookspec
def stopping(context: PluginContext[Any]) -> None:
    """Take note that the plugin serves no more; called after its last request was answered."""
