"""What a plugin may see of the host that it runs in, and what it may ask of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from plughost.certificates import CertificateInfo, describe
from plughost.serving import listeners_of

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from plughost.declarations import Check, Declarations
    from plughost.engines import Listener
    from plughost.events import Events
    from plughost.generation import SiteAssembly
    from plughost.host import Host
    from plughost.reports import ReloadReport
    from plughost.roster import Entry
    from plughost.settings import Value
    from plughost.stores import OpenStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginView:
    """An installed plugin.

    Attributes:
        name: Its name.
        distribution: The distribution that brings it.
        version: That distribution's version.
        state: `active`, `disabled`, `failed` or `blocked`.
        reason: Why it does not serve; None where it does, or is disabled.
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


class HostView:
    """A host, as its plugins see it: always what it is now, whichever generation serves.

    Attributes:
        events: What happens on the host.
        lines: The lines of its log, as they are written: events `line`, whose fields are what was logged.
    """

    def __init__(self, host: Host) -> None:
        """Look at a host."""
        self._host = host
        self.events: Events = host.events
        self.lines: Events = host.lines
        self._kept: dict[tuple[str, str], Any] = {}
        self._answers: dict[tuple[str, str], Callable[[], Mapping[str, Any]]] = {}
        self._keeping = threading.Lock()

    @property
    def phase(self) -> str:
        """`starting`, `serving`, `draining` or `stopped`."""
        return self._host.phase.value

    @property
    def generation(self) -> int:
        """The number of the generation that serves; 0 before the first. What is derived from one may be kept by it."""
        return self._host.number

    @property
    def started_at(self) -> datetime | None:
        """When the host began to serve."""
        return self._host.started_at

    @property
    def plugins(self) -> tuple[PluginView, ...]:
        """Every installed plugin, in the order in which they are asked; empty before the first generation serves."""
        generation = self._host.generation
        return () if generation is None else tuple(_view(entry) for entry in generation.roster)

    @property
    def sites(self) -> Mapping[str, SiteAssembly]:
        """What each site serves, by name."""
        generation = self._host.generation
        return {} if generation is None else generation.sites

    @property
    def listeners(self) -> Mapping[Listener, int]:
        """The open listeners and their TCP ports; of a preview, those that would be open."""
        engines = self._host.serving.engines
        if not engines and self.phase == "starting":
            settings = self._host.settings
            return {each: each.port for site in self.sites for each in listeners_of(site, settings)}
        return {listener: engine.port for listener, engine in engines.items()}

    @property
    def in_flight(self) -> Mapping[str, int]:
        """How many requests each site is answering."""
        return {name: site.in_flight for name, site in self._host.serving.sites.items()}

    @property
    def in_flight_by_plugin(self) -> Mapping[str, int]:
        """How many requests each active plugin is answering; those of the empty name are for none of them."""
        counted = Counter(plugin for site in self._host.serving.sites.values() for plugin in site.plugins_in_flight())
        return {name: counted[name] for name in dict.fromkeys(("", *self._active(), *counted))}

    @property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The open stores of all plugins, by name."""
        generation = self._host.generation
        return {} if generation is None else generation.stores

    @property
    def checks(self) -> tuple[Check, ...]:
        """The health checks of all active plugins, and the host's own: of each store, and of where rate limits count.

        The same ones in each generation, so that what one found may be kept by it.
        """
        generation = self._host.generation
        if generation is None:
            return ()
        declared = (check for entry in generation.roster.active() for check in entry.declared.checks)
        return (*declared, *generation.stores.checks, *generation.rate_limits.checks())

    @property
    def data_dir(self) -> Path:
        """The host's data folder."""
        return self._host.settings.data_dir

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the operator should know."""
        generation = self._host.generation
        return () if generation is None else generation.warnings

    @property
    def last_reload(self) -> ReloadReport | None:
        """What came of the last reload."""
        return self._host.last_reload

    def catch_up(self) -> None:
        """Have the plugins' observers told of the requests that were answered until now, not only within a second."""
        self._host.answered.catch_up()

    def preview(self, *, dev: bool = False) -> HostView:
        """Return what the host would serve if it were started, for commands: nothing is opened, and stores stay closed.

        Args:
            dev: Whether it is to be looked at as with `--dev`.
        """
        return self._host.preview(dev=dev)

    def settings(self) -> list[Value]:
        """Return every setting in force, secrets masked."""
        generation = self._host.generation
        entries = () if generation is None else generation.roster.entries
        models = {entry.name: entry.settings for entry in entries if entry.settings is not None}
        return list(self._host.settings.values(models))

    def certificate(self) -> CertificateInfo | None:
        """Return what the HTTPS listeners show; None where none is open."""
        return None if self._host.tls is None else describe(self._host.tls)

    def reload(self) -> ReloadReport:
        """Let the host take up what was installed, removed or set since.

        It waits until the requests in flight are answered: call it from a thread of its own, never while answering one.
        """
        return self._host.reload()

    def switch(self, name: str, *, enabled: bool) -> ReloadReport:
        """Enable or disable a plugin in the settings file, and let the host take that up.

        Call it as `reload`. Where the host can't serve with it, the file is as it was before.

        Args:
            name: The plugin.
            enabled: Whether it is to serve.

        Raises:
            OperationError: It can't be switched; the message says why, and nothing has changed.
        """
        return self._host.switch(name, enabled=enabled)

    def keep(self, plugin: str, name: str, make: Callable[[], T]) -> T:
        """Return what a plugin keeps for as long as the host runs; see `PluginContext.keep`."""
        with self._keeping:
            if (plugin, name) not in self._kept:
                self._kept[plugin, name] = make()
            kept: T = self._kept[plugin, name]
            return kept

    def take_questions(self, plugin: str, question: str, answer: Callable[[], Mapping[str, Any]]) -> None:
        """Let commands ask this host something; see `PluginContext.take_questions`."""
        self._answers[plugin, question] = answer

    def answer(self, plugin: str, question: str) -> Mapping[str, Any]:
        """Answer what a command of a plugin asks.

        Raises:
            LookupError: The plugin does not serve, or takes no such question.
        """
        answer = self._answers.get((plugin, question))
        if answer is None or plugin not in self._active():
            message = f"no plugin {plugin} that can tell {question} is active"
            raise LookupError(message)
        return answer()

    def _active(self) -> Iterator[str]:
        generation = self._host.generation
        return (entry.name for entry in generation.roster.active()) if generation is not None else iter(())


def _view(entry: Entry) -> PluginView:
    return PluginView(
        name=entry.name,
        distribution=entry.found.distribution,
        version=entry.found.version,
        state=entry.state.value,
        reason=None if entry.failure is None else str(entry.failure),
        trouble=tuple(str(failure) for failure in entry.trouble),
        requires=entry.found.requires,
        hooks=entry.hooks,
        sites=tuple(sorted({entry.mount.site or group.site for group in entry.declared.groups})),
        declared=entry.declared,
        seconds=dict(entry.seconds),
    )
