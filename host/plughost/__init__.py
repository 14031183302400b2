"""A plugin-based service host: what plugin authors import."""

from __future__ import annotations

from plughost.answered import AnsweredRequest, RequestKind
from plughost.context import PluginContext
from plughost.declarations import (
    Answer,
    Check,
    Health,
    Middleware,
    Observer,
    Operation,
    Page,
    Parameter,
    Principal,
    Route,
    RouteGroup,
    Store,
)
from plughost.hookspecs import hookimpl
from plughost.roster import PluginError

__all__ = [
    "Answer",
    "AnsweredRequest",
    "Check",
    "Health",
    "Middleware",
    "Observer",
    "Operation",
    "Page",
    "Parameter",
    "PluginContext",
    "PluginError",
    "Principal",
    "RequestKind",
    "Route",
    "RouteGroup",
    "Store",
    "hookimpl",
]
