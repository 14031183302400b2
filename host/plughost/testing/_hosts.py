"""A host for the length of a test, with its own ports and temporary data; a plugin context without a host."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import ssl
import sys
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
from plughost._api.jobs import JobRun
from plughost._logging import LineWriter, make_logger, silent_logger
from plughost._plugins.environment import ENTRY_POINT_GROUP
from plughost._runtime.generation import GenerationRefused
from plughost._runtime.host import Host
from plughost._runtime.jobs import Clock
from plughost._runtime.lines import Lines
from plughost._settings.models import HostSettings, LogSettings
from plughost._settings.sources import Settings, read_settings
from plughost._tls.certificates import ensure_self_signed
from plughost._tracebacks import own_frames

if TYPE_CHECKING:
    from plughost._plugins.environment import Environment
    from plughost.stores import OpenStore


SettingsT = TypeVar("SettingsT")

_TRANSPORT_OPTIONS: Final = frozenset({"verify", "cert", "http1", "http2", "limits"})


class ManualClock(Clock):
    """A clock that stands still until its `elapsed` seconds are changed."""

    def __init__(self, start: datetime) -> None:
        if start.tzinfo is None:
            raise ValueError(
                f"a clock is set to a time with a time zone, and {start.isoformat()} has none; add tzinfo=UTC"
            )
        self._start = start.astimezone(UTC)
        self.elapsed = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed

    def wait_timeout(self, seconds: float) -> float | None:
        return None


class _ErrorPrinter(LineWriter):
    """Prints the errors in a host's log, which pytest shows with a test that fails."""

    def error(self, line: str) -> None:
        fields = json.loads(line)
        exception = own_frames(fields.pop("exception", ""))
        print(json.dumps(fields), exception, sep="\n", file=sys.stderr)  # noqa: T201 - what pytest captures

    critical = error


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
            KeyError: The site has no such listener, or no active plugin. The message says which plugins don't serve.
        """
        if (site, scheme) not in self.host.ports:
            raise KeyError(f"no plugin serves on the site {site} over {scheme}{self._not_serving()}")
        return self.host.ports[site, scheme]

    def url(self, site: str = "main", scheme: str = "http") -> str:
        """Return the URL of a listener, without a slash at the end."""
        name = "localhost" if scheme == "https" else "127.0.0.1"
        return f"{scheme}://{name}:{self.port(site, scheme)}"

    def client(self, site: str = "main", scheme: str = "http", **options: Any) -> httpx.Client:
        """Return an HTTP client of a listener, which verifies the certificate.

        Args:
            site: The site.
            scheme: `http` or `https`.
            **options: Arguments of `httpx.Client`, such as `http2=True`: over HTTP/2, each thread has a connection.
        """
        if scheme == "https":
            assert self.host.tls is not None, "a host with an HTTPS listener has a certificate"
            options.setdefault("verify", ssl.create_default_context(cafile=str(self.host.tls.certificate)))
        options.setdefault("verify", False)  # plain HTTP has nothing to verify, and loading certificates is slow
        options.setdefault("timeout", 30.0)
        if options.get("http2"):
            own = {name: options.pop(name) for name in _TRANSPORT_OPTIONS & options.keys()}
            options["transport"] = _ConnectionPerThread(trust_env=False, **own)
        return httpx.Client(base_url=self.url(site, scheme), trust_env=False, **options)

    def advance(self, seconds: float) -> None:
        """Advance the host's clock by some seconds; jobs that become due then begin.

        Only jobs and `PluginContext.now` use this clock.
        """
        clock = self.host.clock
        assert isinstance(clock, ManualClock), "give running_host the time `now` that its clock is to show first"
        clock.elapsed += seconds
        self.host.jobs.wake()

    def run_job(self, plugin: str, name: str) -> None:
        """Run a job once, now and in this thread, and raise what it raises. Its schedule and figures don't change.

        Raises:
            KeyError: The plugin has no such job, or is not active. The message says which plugins don't serve.
        """
        for record in self.host.generation.registry.active():
            for job in record.declared.jobs:
                if (record.name, job.name) == (plugin, name):
                    job.run(JobRun(self.host.clock.now()))
                    return
        raise KeyError(f"no active plugin {plugin} has a job {name}{self._not_serving()}")

    def store(self, name: str) -> OpenStore[Any]:
        """Return an open store, for tests of a plugin's use of it.

        Raises:
            KeyError: No active plugin offers it. The message says which plugins don't serve.
        """
        if name not in self.host.generation.stores:
            raise KeyError(f"no active plugin has a store {name}{self._not_serving()}")
        return self.host.generation.stores[name]

    def _not_serving(self) -> str:
        plugins = self.host.view.plugins
        return "".join(f"; {each.name} is {each.state}: {each.reason}" for each in plugins if each.reason)


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
        plugins: The plugins to serve, with those that they require. All installed ones by default.
        settings: The contents of `plughost.toml`, as nested mappings. The system chooses ports that are not set.
        dev: Whether it runs with `--dev`.
        without: Plugins to skip.
        strict: Refuse to start when any plugin fails.
        distributions: Distributions to use instead of the installed ones. See `plugin_distribution`. A list may change
            while the host runs: a reload reads it again.
        beside: Distributions in addition to those; their plugins are served whatever `plugins` names. It may change,
            too.
        logger: The host's logger. By default, errors go to standard error, and nothing else is logged.
        data_dir: The host's data folder. A temporary folder by default.
        now: The time on its clock until `RunningHost.advance`, with a time zone. The machine's time by default.

    Raises:
        GenerationRefused: A required plugin does not serve.
    """

    def installed() -> Iterator[metadata.Distribution]:
        yield from beside or ()  # first, since the first one of a name counts
        yield from metadata.distributions() if distributions is None else distributions

    with tempfile.TemporaryDirectory(prefix="plughost-test-") as folder, Path(os.devnull).open("w") as devnull:
        file = Path(folder, "plughost.toml")
        complete = _with_free_ports(settings or {}, data_dir or Path(folder, "data"))
        if dev and data_dir is None:
            complete.setdefault("tls", certificate())
        file.write_text(tomlkit.dumps(complete))
        lines = Lines()
        host = Host(
            read_settings(file, environment={}),
            dev=dev,
            without=without,
            strict=strict,
            logger=logger
            if logger is not None
            else make_logger(LogSettings(level="debug", format="json"), devnull, lines, _ErrorPrinter),
            distributions=None if distributions is None and beside is None else installed,
            lines=lines,
            clock=ManualClock(now) if now is not None else None,
        )
        if plugins is not None:
            own = [point.name for each in beside or () for point in each.entry_points.select(group=ENTRY_POINT_GROUP)]
            host.without += tuple(_skipped(host.environment(), {*plugins, *own}))
        with _explained():
            host.start()
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
    """Return settings with one certificate for all hosts of this process: making one for each is slow."""
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
        self._transports: dict[int, httpx.HTTPTransport] = {}  # by thread

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        thread = threading.get_ident()
        if thread not in self._transports:
            self._transports[thread] = httpx.HTTPTransport(**self._options)
        return self._transports[thread].handle_request(request)

    def close(self) -> None:
        while self._transports:
            self._transports.popitem()[1].close()


@contextmanager
def _explained() -> Iterator[None]:
    """Add to a refused start why each plugin fails: the log that says so is not shown."""
    try:
        yield
    except GenerationRefused as error:
        for each in error.registry:
            if each.failure is not None:
                error.add_note(f"{each.installed.label}: {each.failure}")
        raise


def _skipped(environment: Environment, wanted: Collection[str]) -> set[str]:
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
