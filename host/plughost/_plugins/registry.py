"""The registry: a record of each installed plugin, from discovery to serving."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pluggy

from plughost._api import hookspecs
from plughost._api.bounded import Interrupted, bounded, never
from plughost._api.declarations import Declarations
from plughost._plugins.failures import Failure, failure_from, with_advice

if TYPE_CHECKING:
    from plughost._api.context import PluginContext
    from plughost._api.declarations import RouteGroup
    from plughost._plugins.environment import InstalledPlugin
    from plughost._settings.models import MountSettings


class State(enum.StrEnum):
    """The state of a plugin."""

    ACTIVE = "active"
    DISABLED = "disabled"
    FAILED = "failed"
    BLOCKED = "blocked"


@dataclass(slots=True, eq=False)
class PluginRecord:
    """The record of a plugin in the registry.

    Attributes:
        reused: Whether it has the same objects as in the previous generation.
        failure: Why it does not serve. None if it serves or is disabled.
        trouble: What went wrong while it served, such as a failing `started` or `stopping`.
        plugin: The loaded module or object.
        mount: The part of its settings that the host reads: site and body limit.
        seconds: The seconds of its import and of each hook, by stage. Of a reused plugin, from when it was loaded.
    """

    installed: InstalledPlugin
    state: State = State.ACTIVE
    reused: bool = False
    failure: Failure | None = None
    trouble: list[Failure] = field(default_factory=list)
    plugin: Any = None
    hooks: tuple[str, ...] = ()
    settings: Any = None
    mount: MountSettings = None  # type: ignore[assignment] # set before any hook that takes a context
    context: PluginContext[Any] = None  # type: ignore[assignment] # set before any hook that takes it
    declared: Declarations = field(default_factory=Declarations)
    authenticator: Callable[..., Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.installed.name

    @property
    def sites(self) -> list[str]:
        return sorted({self.site_of(group) for group in self.declared.groups})

    def site_of(self, group: RouteGroup) -> str:
        return self.mount.site or group.site


class Registry:
    """The plugins of one build, in the order in which their hooks are called."""

    def __init__(
        self,
        found: Iterable[InstalledPlugin],
        disabled: Collection[str] = (),
        *,
        timeout: float = 30.0,
        interrupted: Callable[[], bool] = never,
    ) -> None:
        """Register the discovered plugins. Disabled plugins are never imported.

        An import and each hook may take `timeout` seconds. The wait ends early once `interrupted` returns True.
        """
        self._timeout = timeout
        self._interrupted = interrupted
        self.records: tuple[PluginRecord, ...] = tuple(PluginRecord(each) for each in found)
        self.manager: pluggy.PluginManager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        for record in self.records:
            if record.name in disabled:
                record.state = State.DISABLED
            elif record.installed.problem is not None:
                self.fail(record, Failure("metadata", record.installed.problem, "Mend that, then reload."))
            elif record.installed.unmet is not None:
                self._block(record, record.installed.unmet, "Install what fits, then reload.")
        self._block_dependents()

    def __iter__(self) -> Iterator[PluginRecord]:
        return iter(self.records)

    def active(self) -> tuple[PluginRecord, ...]:
        return tuple(record for record in self.records if record.state is State.ACTIVE)

    def get(self, name: str) -> PluginRecord | None:
        """Return the plugin of a name; of two distributions that provide it, the one that is used."""
        return next((record for record in self.records if record.name == name), None)

    def reuse(self, record: PluginRecord, before: PluginRecord) -> None:
        """Replace a record by that of the previous generation, but with the plugin as discovered now.

        Mutable fields are copied: the previous generation keeps its own if this one is refused.
        """
        trouble, seconds = list(before.trouble), dict(before.seconds)
        reused = replace(before, installed=record.installed, reused=True, trouble=trouble, seconds=seconds)
        self.records = tuple(reused if each is record else each for each in self.records)

    def fail(self, record: PluginRecord, failure: Failure) -> None:
        """Mark a plugin as failed, and those that depend on it as blocked."""
        record.state = State.FAILED
        record.failure = with_advice(failure, record.installed)
        self._block_dependents()

    def attempt(self, record: PluginRecord, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that runs a plugin's code. An exception or a time-out fails only this plugin.

        It then returns None. Once the host is stopping, it raises `Interrupted`, and no plugin fails.
        """
        if record.state is not State.ACTIVE:
            return None
        result, failure = self._call(record, stage, partial(function, *arguments), self._interrupted)
        if failure is not None:
            self.fail(record, failure)
        return result

    def call(self, record: PluginRecord, hook: str) -> Any:
        """Return the result of one plugin's implementation of a hook, or None if it has none."""
        others = [plugin for plugin in self.manager.get_plugins() if plugin is not record.plugin]
        results = self.manager.subset_hook_caller(hook, others)(context=record.context)
        return results[0] if results else None

    def notify(self, record: PluginRecord, hook: str) -> Failure | None:
        """Call a hook of a plugin that serves. A failure is recorded as trouble and returned; the plugin serves on."""
        _, failure = self._call(record, hook, partial(self.call, record, hook))
        if failure is not None:
            failure = with_advice(failure, record.installed, serves=True)
            record.trouble.append(failure)
        return failure

    def _call(
        self, record: PluginRecord, stage: str, call: Callable[[], Any], interrupted: Callable[[], bool] = never
    ) -> tuple[Any, Failure | None]:
        started = perf_counter()
        try:
            return bounded(call, self._timeout, f"{record.name}:{stage}", interrupted), None
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin that calls sys.exit must not end the host either
            return None, failure_from(stage, error)
        finally:
            if not record.reused:
                record.seconds[stage] = record.seconds.get(stage, 0.0) + perf_counter() - started

    def _block_dependents(self) -> None:
        """Block each plugin that depends on one that does not serve. Dependents come last in the order."""
        by_name = {record.name: record for record in reversed(self.records)}  # as `get`, for all at once
        for record in self.active():
            required = (by_name.get(name) for name in record.installed.requires)
            missing = next((each for each in required if each is not None and each.state is not State.ACTIVE), None)
            if missing is not None:
                cause = f"it requires {missing.installed.label}, which is {missing.state}"
                self._block(record, cause, f"Mend or enable {missing.name} first.")

    def _block(self, record: PluginRecord, cause: str, advice: str) -> None:
        record.state = State.BLOCKED
        record.failure = Failure("dependency", cause, advice)
