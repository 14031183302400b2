"""The host as a plugin sees it, and what a plugin may do to it where the operator lets it."""

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
        scheme: How it is spoken to.
        address: An IP address or a host name to bind.
        port: The TCP port. 0 lets the system choose one.
        engine: Which engine serves it.
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
        distribution: The distribution that brings it.
        version: That distribution's version.
        state: `active`, `disabled`, `failed` or `blocked`.
        reason: Why it does not serve. None where it does, or is disabled.
        trouble: What went wrong since it serves.
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
    """What a plugin takes of the threads that answer requests.

    Attributes:
        held: How many threads it holds: with slow requests, or with any where it has a store.
        queued: How many of its requests wait for one of these to end.
        refused: How many of its requests were refused so far, since too many waited or since they waited too long.
    """

    held: int
    queued: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteView:
    """What one site serves.

    Attributes:
        groups: The route groups mounted on it, each with its plugin's name. Where the site wants a role, so does each
            operation.
        middleware: The middleware around it, outermost first.
    """

    groups: tuple[tuple[str, RouteGroup], ...]
    middleware: tuple[Middleware, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInfo:
    """What a certificate says.

    Attributes:
        subject: Whom it is for, as RFC 4514 writes it.
        issuer: Who signed it.
        names: The DNS names and IP addresses that it is valid for.
        not_before: Start of its validity, in UTC.
        not_after: End of its validity, in UTC.
        days_left: Whole days until then. Negative once it has expired.
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
    """A setting as it is in force.

    Attributes:
        key: Its dotted key.
        value: Its value. Secrets are masked.
        default: What it is where nobody sets it.
        source: `default`, the file's name, or the environment variable's.
        description: What it is for, and its unit, as its model says. Empty where that says nothing.
        example: A value it may have, the first of its model's `examples`. None where that has none.
    """

    key: str
    value: Any
    default: Any
    source: str
    description: str = ""
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """What changing a setting would do to the settings file.

    Attributes:
        key: The setting's dotted key.
        diff: The lines of the file that change, as a unified diff. Empty where none does.
        at_restart: Whether it takes effect at the next start only.
    """

    key: str
    diff: str
    at_restart: bool


class HostControl(Protocol):
    """What a plugin may do to its host where the operator grants it. See `PluginContext.control`."""

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The open stores of all plugins, by name.

        In a command, these are the stores of every installed plugin, disabled ones too, prepared and not open.
        `plugins` shows from then on which plugins failed.
        """

    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Let the host take up what was installed, removed or set since. In a command the host that runs does.

        It waits until the requests in flight are answered: call it from a thread of its own, never while answering one.

        Args:
            accept: Plugins that serve now and may be failed or blocked afterwards.
            origin: Who asked, for the audit trail: `where`, `request_id` ...

        Raises:
            NotRunning: It is a command that asks, and no host runs on the data folder.
            CommandError: It is a command that asks, and the host that runs can't do it.
        """

    def switch(self, name: str, *, enabled: bool, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Enable or disable a plugin in the settings file, and let the host take that up.

        Call it as `reload`. Where the host can't serve with it, the file is as it was before.

        Raises:
            CommandError: It can't be switched. The message says why, and nothing has changed.
        """

    @property
    def logins(self) -> Mapping[str, Callable[[], str]]:
        """What issues a bearer token for each demo account, by its name. See `PluginContext.offer_login`."""

    def preview_setting(self, key: str, value: object) -> SettingChange:
        """Return what `change_setting` would do to the settings file, once it is found valid.

        Raises:
            CommandError: It can't be changed so. The message says why.
        """

    def change_setting(self, key: str, value: object, *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        """Change a setting in the settings file, comments kept, and let the host take that up.

        Call it as `reload`. Where the host can't serve with it, the file is as it was before.

        Args:
            key: The setting's dotted key.
            value: Its new value, of those that TOML has. None for the default.
            origin: Who asked, as of `reload`.

        Raises:
            CommandError: It can't be changed so: it is a secret, invalid, or set by a variable. Nothing has changed.
        """

    def purge(self, name: str, *, origin: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Drop for good all that a plugin keeps in its stores. The plugin must not serve.

        Returns:
            The stores that were dropped.

        Raises:
            CommandError: It serves, has no store, or a store can't be dropped.
        """


class HostView(Protocol):
    """A host, as its plugins see it: always what it is now, whichever generation serves."""

    @property
    def events(self) -> Events:
        """What happens on the host."""

    @property
    def lines(self) -> Events:
        """The lines of its log, as they are written: events `line`, whose fields are what was logged."""

    @property
    def hooks(self) -> Mapping[str, str]:
        """The hooks that the host calls, by name, with a sentence on each."""

    @property
    def phase(self) -> str:
        """`starting`, `serving`, `leaving` (asked to stop, and serving for a while), `draining` or `stopped`."""

    @property
    def unready(self) -> str | None:
        """Why load balancers should send the host no requests. None where they should."""

    @property
    def generation(self) -> int:
        """The number of the generation that serves. 0 before the first. What is derived from one may be kept by it."""

    @property
    def started_at(self) -> datetime | None:
        """When the host began to serve."""

    @property
    def plugins(self) -> tuple[PluginView, ...]:
        """Every installed plugin, in the order in which they are asked. Empty before the first generation serves."""

    @property
    def sites(self) -> Mapping[str, SiteView]:
        """What each site serves, by name."""

    @property
    def listeners(self) -> Mapping[Listener, int]:
        """The open listeners and their TCP ports. Of a preview, those that would be open."""

    @property
    def in_flight(self) -> Mapping[str, int]:
        """How many requests each site is answering."""

    @property
    def in_flight_by_plugin(self) -> Mapping[str, int]:
        """How many requests each active plugin is answering. Those of the empty name are for none of them."""

    @property
    def loads(self) -> Mapping[str, Load]:
        """What each plugin takes of the threads that answer requests, by name. Of the empty name, what is for none."""

    @property
    def store_figures(self) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """What the connections of each open store do, by plugin and store. See `OpenStore.figures`."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """The health checks of all active plugins, and the host's own: of stores, of jobs, of where rate limits count.

        The same ones in each generation, so that what one found may be kept by it.
        """

    @property
    def metrics(self) -> tuple[MetricView, ...]:
        """The metrics of the active plugins' own, by plugin. Until somebody asks for the first time, none counts."""

    def now(self) -> datetime:
        """Return the date and time, in UTC. See `PluginContext.now`."""

    @property
    def jobs(self) -> tuple[JobView, ...]:
        """The jobs of all active plugins, by plugin and name. Empty in a preview: see `PluginView.declared` there."""

    @property
    def data_dir(self) -> Path:
        """The host's data folder."""

    @property
    def settings_dir(self) -> Path:
        """The folder that relative paths in the settings start from."""

    def why_not_allowed(self, distribution: str, version: str) -> str | None:
        """Return why the setting `allowed` keeps a distribution from bringing plugins; None where it may."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know."""

    @property
    def last_reload(self) -> ReloadReport | None:
        """What came of the last reload."""

    def catch_up(self) -> None:
        """Notify the observers now of all requests so far, instead of within a second."""

    def preview(self, *, dev: bool = False) -> HostView:
        """Return what the host would serve if it were started, for commands: nothing is opened, and stores stay closed.

        With `dev`, it is looked at as with `--dev`.
        """

    def settings(self) -> list[Value]:
        """Return every setting in force, secrets masked."""

    def certificate(self) -> CertificateInfo | None:
        """Return what the HTTPS listeners show. None where none is open.

        Raises:
            CertificateError: It can't be read.
        """


class HostServices(HostView, Protocol):
    """What a `PluginContext` asks of its host for its plugin. Plugins use the context."""

    @property
    def control(self) -> HostControl:
        """What trusted plugins may do. See `PluginContext.control`."""

    def keep(self, plugin: str, name: str, make: Callable[[], T]) -> T:
        """Return what a plugin keeps for as long as the host runs. See `PluginContext.keep`."""

    def add_query(self, plugin: str, name: str, handler: Callable[[], Mapping[str, Any]]) -> None:
        """Let commands query this host. See `PluginContext.add_query`."""
