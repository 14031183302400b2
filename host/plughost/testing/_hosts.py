"""A host for the length of a test, on ports of its own, with data that is gone afterwards; a context without one."""

from __future__ import annotations

import atexit
import os
import shutil
import ssl
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx
import structlog
import tomlkit

from plughost._api.context import PluginContext
from plughost._api.events import Events
from plughost._logging import make_logger, silent_logger
from plughost._plugins.discovery import ENTRY_POINT_GROUP
from plughost._runtime.host import Host
from plughost._runtime.jobs import Clock
from plughost._settings.models import HostSettings, LogSettings
from plughost._settings.sources import Settings, read_settings
from plughost._tls.self_signed import ensure_self_signed

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment
    from plughost.stores import OpenStore


SettingsT = TypeVar("SettingsT")

_OF_TRANSPORTS: Final = frozenset({"verify", "cert", "http1", "http2", "limits"})


class SetClock(Clock):
    """A time that stands still until it is advanced."""

    def __init__(self, now: datetime) -> None:
        """Begin at a moment, which has a time zone."""
        if now.tzinfo is None:
            message = f"a clock is set to a time with a time zone, and {now.isoformat()} has none; add tzinfo=UTC"
            raise ValueError(message)
        self._began = now.astimezone(UTC)
        self._passed = 0.0

    def now(self) -> datetime:
        """Return the moment that it was set to."""
        return self._began + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Return the seconds that it was advanced."""
        return self._passed

    def wait_timeout(self, seconds: float) -> float | None:
        """Return None: nothing happens until it is advanced."""
        return None

    def advance(self, seconds: float) -> None:
        """Let some seconds pass."""
        self._passed += seconds


class RunningHost:
    """A host that serves.

    Attributes:
        host: The host itself.
    """

    def __init__(self, host: Host) -> None:
        self.host = host

    def port(self, site: str = "main", scheme: str = "http") -> int:
        """Return the TCP port of a listener.

        Raises:
            KeyError: The site has no such listener, or no active plugin.
        """
        return self.host.ports[site, scheme]

    def url(self, site: str = "main", scheme: str = "http") -> str:
        """Return the address of a listener, without a slash at the end."""
        name = "localhost" if scheme == "https" else "127.0.0.1"
        return f"{scheme}://{name}:{self.port(site, scheme)}"

    def client(self, site: str = "main", scheme: str = "http", **options: Any) -> httpx.Client:
        """Return an HTTP client of a listener, which verifies the certificate.

        Args:
            site: The site.
            scheme: `http` or `https`.
            **options: What `httpx.Client` takes, such as `http2=True`: over HTTP/2, each thread has its own connection.
        """
        if scheme == "https":
            assert self.host.tls is not None, "a host with an HTTPS listener has a certificate"
            options.setdefault("verify", ssl.create_default_context(cafile=str(self.host.tls.certificate)))
        options.setdefault("verify", False)  # there is nothing to verify, and to load what one would takes its time
        options.setdefault("timeout", 30.0)
        if options.get("http2"):
            kept = {name: options.pop(name) for name in _OF_TRANSPORTS & options.keys()}
            options["transport"] = _ConnectionPerThread(trust_env=False, **kept)
        return httpx.Client(base_url=self.url(site, scheme), trust_env=False, **options)

    def advance(self, seconds: float) -> None:
        """Let some seconds pass on the host's clock, and its jobs begin that are due then.

        The clock is that of jobs and of `PluginContext.now`, and of nothing else.
        """
        clock = self.host.clock
        assert isinstance(clock, SetClock), "give running_host the time `now` that its clock is to show first"
        clock.advance(seconds)
        self.host.jobs.wake()

    def store(self, name: str) -> OpenStore[Any]:
        """Return an open store, for tests of what a plugin does with it.

        Raises:
            KeyError: No active plugin offers it.
        """
        assert self.host.generation is not None, "a host that runs has a generation"
        return self.host.generation.stores[name]


@contextmanager
def running_host(
    plugins: Collection[str] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    dev: bool = True,
    without: Collection[str] = (),
    strict: bool = False,
    distributions: Collection[metadata.Distribution] | None = None,
    beside: Collection[metadata.Distribution] | None = None,
    logger: structlog.stdlib.BoundLogger | None = None,
    data_dir: Path | None = None,
    now: datetime | None = None,
) -> Iterator[RunningHost]:
    """Run a host for the length of a `with` block.

    Args:
        plugins: The plugins to serve, beside those that they require. All that are installed by default.
        settings: What `plughost.toml` would hold, as nested mappings. Ports are chosen by the system unless set.
        dev: Whether it runs with `--dev`.
        without: Plugins to skip.
        strict: Refuse to start when any plugin fails.
        distributions: What is installed, for plugins that are not. See `plugin_distribution`. A list may be
            changed while the host runs, and is looked at again by a reload.
        beside: What is installed beside that; its plugins are served whatever `plugins` names. It may be changed, too.
        logger: Where it logs. Nowhere by default.
        data_dir: Where it keeps its data. A folder that is removed afterwards by default.
        now: What its clock shows until `RunningHost.advance`, with a time zone. The machine's time by default.

    Raises:
        GenerationRefused: A plugin that is required does not serve.
    """

    def installed() -> Iterator[metadata.Distribution]:
        yield from beside or ()  # first: of one name, that one counts
        yield from metadata.distributions() if distributions is None else distributions

    with tempfile.TemporaryDirectory(prefix="plughost-test-") as folder, Path(os.devnull).open("w") as nowhere:
        file = Path(folder, "plughost.toml")
        complete = _with_free_ports(settings or {}, data_dir or Path(folder, "data"))
        if dev and data_dir is None:
            complete.setdefault("tls", certificate())
        file.write_text(tomlkit.dumps(complete))
        lines = Events()
        host = Host(
            read_settings(file, environment={}),
            dev=dev,
            without=without,
            strict=strict,
            logger=logger if logger is not None else make_logger(LogSettings(level="debug"), nowhere, lines),
            distributions=None if distributions is None and beside is None else installed,
            lines=lines,
            clock=SetClock(now) if now is not None else None,
        )
        environment = host.environment()
        if plugins is not None:
            own = [point.name for each in beside or () for point in each.entry_points.select(group=ENTRY_POINT_GROUP)]
            host.skip(_others(environment, {*plugins, *own}))
        host.start(environment)
        try:
            yield RunningHost(host)
        finally:
            host.stop()


def plugin_context(
    plugin: str,
    settings: SettingsT,
    data_dir: Path,
    *,
    dev: bool = True,
    stores: Mapping[str, OpenStore[Any]] | None = None,
) -> PluginContext[SettingsT]:
    """Return the context that a host would give a plugin.

    Args:
        plugin: The plugin's name.
        settings: Its settings.
        data_dir: The host's data folder.
        dev: Whether the host runs with `--dev`.
        stores: The open stores that the plugin may use.
    """
    host_settings = Settings(file=None, base=data_dir, host=HostSettings(data_dir=data_dir), tables={}, environment={})
    return PluginContext(
        plugin=plugin,
        settings=settings,
        dev=dev,
        logger=structlog.get_logger(),
        data_root=data_dir,
        services=Host(host_settings, dev=dev, logger=silent_logger()).view,
        stores=stores or {},
    )


@cache
def certificate() -> dict[str, str]:
    """Return settings with a certificate for all hosts of this process: to make one for each takes its time."""
    folder = tempfile.mkdtemp(prefix="plughost-test-tls-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = ensure_self_signed(Path(folder), ())
    return {"certificate": str(made.certificate), "key": str(made.key)}


class _ConnectionPerThread(httpx.BaseTransport):
    """Gives each thread connections of its own.

    httpx's HTTP/2 connection is not safe to share: threads send each other's frames in the wrong order, and the
    server ends the connection with PROTOCOL_ERROR, as it must (RFC 9113, section 5.1.1).
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._local = threading.local()
        self._made: list[httpx.HTTPTransport] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        transport: httpx.HTTPTransport | None = getattr(self._local, "transport", None)
        if transport is None:
            transport = self._local.transport = httpx.HTTPTransport(**self._options)
            self._made.append(transport)
        return transport.handle_request(request)

    def close(self) -> None:
        while self._made:
            self._made.pop().close()


def _others(environment: Environment, wanted: Collection[str]) -> set[str]:
    found = {each.name: each for each in environment.plugins}
    unknown = sorted(set(wanted) - set(found))
    if unknown:
        raise LookupError(f"no plugin {', '.join(unknown)} is installed; installed: {', '.join(found) or 'none'}")
    needed = set(wanted).union(*(found[name].requires for name in wanted))
    return set(found) - needed


def _with_free_ports(settings: Mapping[str, Any], data_dir: Path) -> dict[str, Any]:
    sites = settings.get("sites", {})
    free = {"http_port": 0, "https_port": 0}
    return {
        "data_dir": str(data_dir),
        "grace_time": 10,
        **settings,
        "sites": {site: {**free, **sites.get(site, {})} for site in ("main", "library", "admin")},
        "log": {"access": False, **settings.get("log", {})},
    }
