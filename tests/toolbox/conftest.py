"""Hosts with a small plugin that uses the toolbox, and a private Redis server."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import falcon
import pytest
from redis import Redis
from tests.ports import free_port
from tests.waiting import wait_until

from plughost import Middleware, Operation, Principal, Route, RouteGroup, hookimpl
from plughost._api.declarations import JSON
from plughost.ratelimits import RateLimit
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.http import Request


class Note:
    """A resource that answers, streams, fails and shows the principal."""

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.media = {"note": "x" * req.get_param_as_int("size", default=10)}

    def on_put(self, req: Request, resp: falcon.Response) -> None:
        """Fail."""
        raise RuntimeError("on purpose")


class NotesPlugin:
    """A plugin with a rate limit."""

    def __init__(self, limit: str | None = "3/hour", name: str = "notes", resource: object = None) -> None:
        """Store the limit, the name and, instead of `Note`, the resource."""
        self.limit = limit
        self.name = name
        self.resource = resource or Note()
        self.produces = JSON if resource is None else ()

    @hookimpl
    def register_middleware(self, context: PluginContext[Any]) -> list[Middleware]:
        """Limit the requests."""
        if self.limit is None:
            return []
        return [Middleware(name=f"{self.name}-limit", component=RateLimit(context, self.limit))]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount the resource."""
        methods = [method for method in ("GET", "PUT") if hasattr(self.resource, f"on_{method.lower()}")]
        route = Route(
            "", self.resource, {method: Operation(summary="Do it", produces=self.produces) for method in methods}
        )
        return [RouteGroup(prefix=f"/{self.name}", routes=(route,), versions=("1.0",))]


class TokensPlugin:
    """An authenticator: a token is a user's name, and `bad` is invalid."""

    @hookimpl
    def register_authenticator(self, context: PluginContext[Any]) -> Callable[[Request], Principal | None]:
        """Return the function that authenticates."""
        return self.principal

    def principal(self, req: Request) -> Principal | None:
        """Return the principal of a token."""
        name = (req.auth or "").removeprefix("Bearer ")
        if name == "bad":
            raise falcon.HTTPUnauthorized(challenges=['Bearer realm="tokens", error="invalid_token"'])
        return Principal(name) if name else None


@contextmanager
def notes_host(*plugins: NotesPlugin, **settings: Any) -> Iterator[RunningHost]:
    """Run a host with some plugins and an authenticator."""
    installed = [plugin_distribution(plugin.name, plugin) for plugin in plugins]
    installed.append(plugin_distribution("tokens", TokensPlugin()))
    with running_host(distributions=installed, settings=settings, strict=True) as host:
        yield host


class PrivateRedis:
    """A Redis server on its own port, which can be stopped and started.

    Attributes:
        port: Its TCP port.
    """

    def __init__(self, program: str, folder: Path) -> None:
        """Choose a port."""
        self.port = free_port()
        self._command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def clients(self) -> set[str]:
        """Return the ids of all connections but this one."""
        with Redis.from_url(self.url) as redis:
            return {each["id"] for each in redis.client_list()} - {str(redis.client_id())}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        wait_until(self._answers)

    def stop(self) -> None:
        """Kill it, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[PrivateRedis]:
    """A running Redis server."""
    pytest.importorskip("redis", reason="rate limits in Redis are not tested: the package redis is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("rate limits in Redis are not tested: there is no redis-server on this machine")
    server = PrivateRedis(program, tmp_path)
    server.start()
    yield server
    server.stop()
