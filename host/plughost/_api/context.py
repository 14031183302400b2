"""A plugin's view of its host: its own settings, stores, logger and folder, and nothing of other plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from plughost._api.errors import PluginError
from plughost._api.metrics import Metrics
from plughost._files import make_folder

if TYPE_CHECKING:
    from datetime import datetime

    import structlog

    from plughost._api.declarations import Principal, Store
    from plughost._api.host import HostControl, HostServices, HostView
    from plughost._runtime.audit import Audit
    from plughost.http._request import Request
    from plughost.ratelimits._counter import Counter, RateLimits
    from plughost.stores import OpenStore

SettingsT = TypeVar("SettingsT")
T = TypeVar("T")
E = TypeVar("E")


def _counted_in_memory() -> RateLimits:
    from plughost.ratelimits._counter import RateLimits  # noqa: PLC0415 - brings limits and Falcon: not every command needs them

    return RateLimits()


@dataclass(frozen=True, kw_only=True)
class PluginContext(Generic[SettingsT]):
    """A plugin's view of its host, the same object for each of its hooks in one generation.

    Attributes:
        plugin: The plugin's name.
        settings: Its validated settings: an instance of the model that `register_settings` returned, else None.
        dev: Whether the host runs with `--dev`.
        logger: A structured logger that names the plugin in every line.
        data_dir: The plugin's own folder, made on first use. Other hosts don't share it, and backups of stores lack it.
        stores: The stores that the plugin may use, by name: its own, and those of the plugins it requires. They are
            open from `started` on.
        authenticator: Returns the principal of a request. None if no installed plugin offers it.
        rate_limits: The host's counters. See `counter`.
        metrics: Creates the plugin's own metrics.
        host: What the plugin may see of its host.
        trusted: Whether the operator lets the plugin control the host. See `control`.
        audits: Where `audit` writes. By default, the log.
        announcements: Lines for the person who starts the host. See `announce`.
        logins: Functions that issue tokens for demo accounts. See `offer_login`.
        queries: What the plugin's commands can ask it in the running host. See `add_query`.
    """

    plugin: str
    settings: SettingsT
    dev: bool
    logger: structlog.stdlib.BoundLogger
    data_root: Path
    services: HostServices
    trusted: bool = False
    stores: Mapping[str, OpenStore[Any]] = field(default_factory=dict)
    authenticator: Callable[[Request], Principal | None] | None = None
    rate_limits: RateLimits = field(default_factory=_counted_in_memory)
    metrics: Metrics = field(default_factory=Metrics)
    announcements: list[str] = field(default_factory=list)
    logins: dict[str, Callable[[], str]] = field(default_factory=dict)
    queries: dict[str, Callable[[], Mapping[str, Any]]] = field(default_factory=dict)
    audits: Audit | None = None

    @property
    def host(self) -> HostView:
        """What the plugin may see of its host."""
        return self.services

    @property
    def control(self) -> HostControl:
        """What the plugin may do to its host: reload it, switch and purge plugins, change settings, read every store.

        Raises:
            PluginError: The setting `trusted` does not name the plugin.
        """
        if not self.trusted:
            cause = "it asks to control the host, and the setting trusted does not name it"
            raise PluginError(cause, f'If you trust it, add "{self.plugin}" to trusted in the settings.')
        return self.services.control

    @property
    def data_dir(self) -> Path:
        """The plugin's own folder below the host's data folder, made with mode 0700."""
        folder = self.data_root / "plugins" / self.plugin
        make_folder(folder)
        return folder

    def store(self, declared: Store[E]) -> OpenStore[E]:
        """Return the open store of a declaration, with its operations typed.

        Args:
            declared: A declaration that `register_stores` of this plugin, or of one that it requires, returned.

        Raises:
            PluginError: The plugin may not use a store of this name.
        """
        name = getattr(declared, "name", None)  # authors without a type checker give a name
        found = self.stores.get(name) if name is not None else None
        if found is None:
            cause = f"it asks for the store {name or declared!r}, and may use {', '.join(self.stores) or 'none'}"
            advice = (
                "Return the declaration from register_stores, or require the distribution whose plugin does; "
                "give the declaration, not its name."
            )
            raise PluginError(cause, advice)
        return found

    def now(self) -> datetime:
        """Return the date and time in UTC: the machine's, or the one that a test set (see `plughost.testing`)."""
        return self.services.now()

    def counter(self, limit: str, name: str, *, always: bool = False, longest: int | None = None) -> Counter:
        """Return a counter for this plugin. To limit requests, see `plughost.ratelimits.RateLimit`.

        Args:
            limit: An amount per time, such as `5/minute`.
            name: What is counted. Counters with one name and limit count together, on all hosts that share a Redis.
            always: Count in this process while Redis is unavailable, even if the settings then allow requests
                uncounted. For what must always be counted, such as password guesses.
            longest: Maximum seconds of growing waits: a key is forgotten after a window's length without hits, and each
                hit beyond the limit adds a sixth of the window to that wait. Fixed windows by default.
        """
        return self.rate_limits.counter(f"{self.plugin}/{name}", limit, always=always, longest=longest)

    def emit(self, event: str, **fields: Any) -> None:
        """Emit an event of this plugin to the host's subscribers.

        Args:
            event: What happened, such as `login`.
            **fields: Details, in plain values. Never secrets.
        """
        self.services.events.emit(event, self.plugin, **fields)

    def audit(
        self, what: str, outcome: str, *, who: str | None = None, req: Request | None = None, **more: Any
    ) -> None:
        """Write an event to the audit trail, for accountability (docs/operators/security.md).

        Args:
            what: What was done or tried, such as `login`.
            outcome: The result: `ok`, `refused`, `failed` ...
            who: The account concerned. It is written as its `pseudonym`.
            req: The request that caused it, for its address and id. The host then writes no event of its own if it
                refuses the request.
            **more: Details, in plain values. Never secrets.
        """
        self._audits.record(what, outcome, **self._audit_fields(who, req, more))

    @contextmanager
    def audited(
        self, what: str, *, who: str | None = None, req: Request | None = None, **more: Any
    ) -> Iterator[dict[str, Any]]:
        """Write an event to the audit trail when a block ends: `ok`, or `failed` if it raises. See `audit`.

        Yields:
            The event's fields. The block may add fields. An `outcome` that it sets is kept.
        """
        with self._audits.recording(what, **self._audit_fields(who, req, more)) as event:
            yield event

    def pseudonym(self, account: str) -> str:
        """Return an account's name in the audit trail: a hash with a key that only this host has."""
        return self._audits.pseudonym(account)

    def _audit_fields(self, who: str | None, req: Request | None, more: dict[str, Any]) -> dict[str, Any]:
        if who is not None:
            more["who"] = self.pseudonym(who)
        if req is not None:
            req.context.audited = True
            more |= {"where": req.remote_addr, "request_id": req.request_id}
        return {"plugin": self.plugin, **more}

    @property
    def _audits(self) -> Audit:
        if self.audits is not None:
            return self.audits
        from plughost._runtime.audit import Audit  # noqa: PLC0415 - a running host provides one

        return Audit(self.logger, self.data_root)

    def keep(self, name: str, make: Callable[[], T]) -> T:
        """Return an object that lives as long as the host, across reloads.

        A changed plugin gets a new context and, if it is a class, a new instance. Keep here what must outlive that. The
        object's class should not come from the plugin itself, whose modules may be imported afresh. `make` creates the
        object when the plugin uses the name for the first time.
        """
        return self.services.keep(self.plugin, name, make)

    def add_query(self, name: str, handler: Callable[[], Mapping[str, Any]]) -> None:
        """Let the plugin's commands query the plugin in the running host. They use `query_host`.

        Args:
            name: The query's name, one word.
            handler: Returns the answer as JSON values. Called in its own thread.
        """
        self.queries[name] = handler

    def query_host(self, name: str) -> Mapping[str, Any]:
        """Query the plugin in the host that runs on the same data folder. For commands.

        Args:
            name: A query that the plugin added by `add_query`.

        Returns:
            The answer, or a mapping with only `error` if the plugin doesn't answer there.

        Raises:
            NotRunning: No host runs on the data folder.
        """
        from plughost._runtime.control import send_command  # noqa: PLC0415 - only commands need it

        return send_command(self.data_root, "query", plugin=self.plugin, name=name)

    def announce(self, line: str) -> None:
        """Show a line to the person who starts the host, such as a demo account or an address to open."""
        self.announcements.append(line)

    def offer_login(self, account: str, issue: Callable[[], str]) -> None:
        """Let developers act as a demo account in the console. Only with `--dev`.

        Args:
            account: The account's name.
            issue: Returns a new token for the account, which this plugin's authenticator accepts as `bearer`.
        """
        if self.dev:
            self.logins[account] = issue
