"""The host as a plugin sees it, and what a trusted plugin may do to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime
    from pathlib import Path

    from plughost._api.declarations import Check, Declarations, Middleware, RouteGroup
    from plughost._api.events import Events
    from plughost._api.jobs import JobView
    from plughost._api.metrics import MetricView
    from plughost._api.reload_report import ReloadReport
    from plughost.stores import OpenStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address at which a site is reached.

    Attributes:
        site: The site's name.
        scheme: The protocol.
        address: An IP address or a host name to bind.
        port: The TCP port. 0 lets the system choose one.
        engine: The engine that serves it.
    """

    site: str
    scheme: Literal["http", "https"]
    address: str
    port: int
    engine: Literal["waitress", "granian"]

    def __str__(self) -> str:
        """Return the listener's URL."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginView:
    """An installed plugin.

    Attributes:
        name: Its name.
        distribution: The distribution that contains it.
        version: That distribution's version.
        state: `active`, `disabled`, `failed` or `blocked`.
        reason: Why it does not serve. None if it does, or is disabled.
        trouble: Problems since it began to serve.
        requires: Names of the plugins that it depends on.
        hooks: The hooks that it implements.
        sites: The sites that it is mounted on.
        declared: What it declares.
        seconds: Seconds that its import and each of its hooks took.
    """

    name: str
    distribution: str
    version: str
    state: str
    reason: str | None
    trouble: tuple[str, ...]
    requires: tuple[str, ...]
    hooks: tuple[str, ...]
    sites: tuple[str, ...]
    declared: Declarations
    seconds: Mapping[str, float]


class Load(NamedTuple):
    """How many request threads a plugin uses.

    Attributes:
        held: How many threads it holds: with slow requests, or with any requests if it has a store.
        queued: How many of its requests wait for one of these threads.
        refused: How many of its requests were refused so far, since too many waited or since they waited too long.
    """

    held: int
    queued: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteView:
    """What one site serves.

    Attributes:
        groups: The route groups mounted on it, each with its plugin's name. If the site requires a role, so does each
            operation.
        middleware: The middleware around it, outermost first.
    """

    groups: tuple[tuple[str, RouteGroup], ...]
    middleware: tuple[Middleware, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInfo:
    """The contents of a certificate.

    Attributes:
        subject: Its subject, as an RFC 4514 string.
        issuer: Who signed it.
        names: The DNS names and IP addresses that it is valid for.
        not_before: Start of its validity, in UTC.
        not_after: End of its validity, in UTC.
        days_left: Whole days until `not_after`. Negative once it has expired.
        sha256: Fingerprint, as pairs of hex digits with colons.
        self_signed: Whether it is signed by its own key.
        key_type: Such as `EC P-256`.
        path: The file that it was read from.
    """

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    days_left: int
    sha256: str
    self_signed: bool
    key_type: str
    path: Path


@dataclass(frozen=True, slots=True)
class Value:
    """A setting in force.

    Attributes:
        key: Its dotted key.
        value: Its value. Secrets are masked.
        default: Its default value.
        source: `default`, the file's name, or the environment variable's.
        description: Its purpose and unit, from its model. Empty if the model has none.
        example: A possible value, the first of its model's `examples`. None if there are none.
    """

    key: str
    value: Any
    default: Any
    source: str
    description: str = ""
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """How a setting's change would change the settings file.

    Attributes:
        key: The setting's dotted key.
        diff: The lines of the file that change, as a unified diff. Empty if none does.
        at_restart: Whether it takes effect only at the next start.
    """

    key: str
    diff: str
    at_restart: bool


class HostControl(Protocol):
    """What a trusted plugin may do to its host. See `PluginContext.control`."""

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The open stores of all plugins, by name.

        In a command, these are the stores of all installed plugins, including disabled ones: prepared, but not open.
        After that, `plugins` shows which plugins failed.
        """

    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Reload the host, with what was installed, removed or set since. In a command, the running host reloads.

        It waits until the requests in flight are answered: call it in a separate thread, never while answering one.

        Args:
            accept: Plugins that serve now and may be failed or blocked afterwards.
            origin: Who asked, for the audit trail: `where`, `request_id` ...

        Raises:
            NotRunning: In a command, no host runs on the data folder.
            CommandError: In a command, the running host can't reload.
        """

    def switch(self, name: str, *, enabled: bool, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Enable or disable a plugin in the settings file, and reload the host.

        Call it like `reload`. If the host can't serve with the change, the file is restored.

        Raises:
            CommandError: The plugin can't be switched. The message says why, and nothing has changed.
        """

    @property
    def logins(self) -> Mapping[str, Callable[[], str]]:
        """Functions that issue bearer tokens for demo accounts, by account name. See `PluginContext.offer_login`."""

    def preview_setting(self, key: str, value: object) -> SettingChange:
        """Validate a change, and return what `change_setting` would do to the settings file.

        Raises:
            CommandError: The setting can't be changed so. The message says why.
        """

    def change_setting(self, key: str, value: object, *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Change a setting in the settings file, keeping comments, and reload the host.

        Call it like `reload`. If the host can't serve with the change, the file is restored.

        Args:
            key: The setting's dotted key.
            value: Its new value, of a TOML type. None for the default.
            origin: Who asked, as for `reload`.

        Raises:
            CommandError: It can't be changed so: it is a secret, invalid, or set by a variable. Nothing has changed.
        """

    def purge(self, name: str, *, origin: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Permanently delete all data in a plugin's stores. The plugin must not serve.

        Returns:
            The stores that were dropped.

        Raises:
            CommandError: The plugin serves, has no store, or a store can't be dropped.
        """


class HostView(Protocol):
    """A host as its plugins see it: always its current state, whichever generation serves."""

    @property
    def events(self) -> Events:
        """The host's events."""

    @property
    def lines(self) -> Events:
        """The lines of its log as they are written: events `line`, whose fields are those of the log line.

        Each subscriber is called in a thread of its own. It gets no line that it logs itself, and none while it is
        10,000 lines late.
        """

    @property
    def hooks(self) -> Mapping[str, str]:
        """The hooks that the host calls, by name, with a sentence on each."""

    @property
    def phase(self) -> str:
        """`starting`, `serving`, `leaving` (asked to stop, and serving for a while), `draining` or `stopped`."""

    @property
    def unready(self) -> str | None:
        """Why load balancers should send the host no requests. None if they should."""

    @property
    def generation(self) -> int:
        """The number of the generation that serves. 0 before the first. It can be the key of a cache."""

    @property
    def started_at(self) -> datetime | None:
        """When the host began to serve."""

    @property
    def plugins(self) -> tuple[PluginView, ...]:
        """All installed plugins, in the order of their hook calls. Empty before the first generation serves."""

    @property
    def sites(self) -> Mapping[str, SiteView]:
        """What each site serves, by name."""

    @property
    def listeners(self) -> Mapping[Listener, int]:
        """The open listeners and their TCP ports. In a preview, those that would be open."""

    @property
    def in_flight(self) -> Mapping[str, int]:
        """How many requests each site is answering."""

    @property
    def in_flight_by_plugin(self) -> Mapping[str, int]:
        """How many requests each active plugin is answering. The empty name is for requests of no plugin."""

    @property
    def loads(self) -> Mapping[str, Load]:
        """How many request threads each plugin uses, by name. The empty name is for requests of no plugin."""

    @property
    def store_figures(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """Figures of the connections of each open store, by plugin and store. See `OpenStore.figures`."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """The health checks of all active plugins, and the host's own: of stores, of jobs, of rate limits' storage.

        A generation always returns the same checks, so they can be the keys of a cache.
        """

    @property
    def metrics(self) -> tuple[MetricView, ...]:
        """The active plugins' own metrics, by plugin."""

    def now(self) -> datetime:
        """Return the date and time, in UTC. See `PluginContext.now`."""

    @property
    def jobs(self) -> tuple[JobView, ...]:
        """The jobs of all active plugins, by plugin and name. Empty in a preview: use `PluginView.declared` there."""

    @property
    def data_dir(self) -> Path:
        """The host's data folder."""

    @property
    def settings_dir(self) -> Path:
        """The folder that relative paths in the settings start from."""

    def why_not_allowed(self, distribution: str, version: str) -> str | None:
        """Return why the setting `allowed` excludes a distribution's plugins. None if it doesn't."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know."""

    @property
    def last_reload(self) -> ReloadReport | None:
        """The report of the last reload."""

    def catch_up(self) -> None:
        """Have the observers notified now of all requests so far, and wait for that up to a second."""

    def preview(self, *, dev: bool = False) -> HostView:
        """Return what the host would serve if it were started, for commands: nothing is opened, and stores stay closed.

        With `dev`, the host is previewed as with `--dev`. A host that runs finishes its start or reload first, so hooks
        that are called meanwhile, such as `started`, wait for themselves.
        """

    def settings(self) -> list[Value]:
        """Return every setting in force, secrets masked."""

    def certificate(self) -> CertificateInfo | None:
        """Return the certificate of the HTTPS listeners. None if none is open.

        Raises:
            CertificateError: The certificate can't be read.
        """


class HostServices(HostView, Protocol):
    """What a `PluginContext` needs of its host. Plugins use the context."""

    @property
    def control(self) -> HostControl:
        """What trusted plugins may do. See `PluginContext.control`."""

    def keep(self, plugin: str, name: str, make: Callable[[], T]) -> T:
        """Return an object that lives as long as the host. See `PluginContext.keep`."""
