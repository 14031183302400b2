"""The registry: a record of each installed plugin, from discovery to serving, and of why it does not serve."""

from __future__ import annotations

import enum
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeGuard

import pluggy

from plughost._api import hookspecs
from plughost._api.bounded import Interrupted, TookTooLong, bounded, never
from plughost._api.declarations import Declarations
from plughost._api.errors import PluginError
from plughost._tracebacks import is_host_file

if TYPE_CHECKING:
    from plughost._api.context import PluginContext
    from plughost._api.declarations import RouteGroup
    from plughost._plugins.environment import InstalledPlugin
    from plughost._settings.models import MountSettings


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a plugin does not serve.

    Attributes:
        stage: Where it happened: `import`, `settings`, `conflict`, or the name of a hook.
        cause: What happened, in one line.
        advice: What to do next. If empty, `with_advice` adds it.
        trace: The traceback, for the log and for `plughost plugins --why`.
    """

    stage: str
    cause: str
    advice: str = ""
    trace: str = ""

    def __str__(self) -> str:
        stop = "" if self.cause.endswith(("?", "!")) else "."
        return f"{self.stage}: {self.cause}{stop} {self.advice}"


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
        for record in self.active():
            required = (self.get(name) for name in record.installed.requires)
            missing = next((each for each in required if each is not None and each.state is not State.ACTIVE), None)
            if missing is not None:
                cause = f"it requires {missing.installed.label}, which is {missing.state}"
                self._block(record, cause, f"Mend or enable {missing.name} first.")

    def _block(self, record: PluginRecord, cause: str, advice: str) -> None:
        record.state = State.BLOCKED
        record.failure = Failure("dependency", cause, advice)


def with_advice(failure: Failure, installed: InstalledPlugin, *, serves: bool = False) -> Failure:
    """Return a failure with advice. The reader of one in a single file, or an editable install, is its author.

    Hooks of a plugin that serves are called in the running host alone, so no command can show their traceback.
    """
    if failure.advice:
        return failure
    remedy = "report it to the plugin's author, or disable the plugin."
    file = vars(installed.entry_point).get("file")  # of a plugin of a single file, which only --dev reads
    if own := file or installed.project:
        remedy = f"mend {own}, which is your own."
    dev = "--dev " if file else ""
    if not failure.trace:
        return replace(failure, advice=f"{remedy[0].upper()}{remedy[1:]}")
    command = "" if serves else f", or shown by `plughost plugins {dev}--why {installed.name}`"
    return replace(failure, advice=f"The traceback is in the log{command}; {remedy}")


def failure_from(stage: str, raised: BaseException) -> Failure:
    """Return the failure for an exception of a plugin's code, or for its time-out."""
    if isinstance(raised, PluginError):
        return Failure(stage, raised.cause, raised.advice)
    trace = "".join(traceback.format_exception(raised))
    if isinstance(raised, TookTooLong):
        return _timed_out(stage, raised, trace)
    advice = ""
    if isinstance(raised, ImportError):
        package, _ = _location(raised)
        is_own = package and (raised.name or "").partition(".")[0] == package
        own_advice = "Mend the import: it is of a module of the plugin's own."
        advice = own_advice if is_own else "Install what is missing, or upgrade the plugin."
    elif isinstance(raised, PermissionError) and raised.filename:
        advice = f"Let the user that runs plughost read and write {raised.filename}."
    return Failure(stage, cause_of(raised), advice, trace)


def cause_of(raised: BaseException) -> str:
    """Return the exception of a plugin's code, and its place in that code, in one line."""
    _, location = _location(raised)
    if isinstance(raised, SystemExit):
        return f"it called sys.exit{location}"
    return f"{type(raised).__name__}{location}: {_one_line_message(raised)}".rstrip(".")


def _timed_out(stage: str, error: TookTooLong, trace: str) -> Failure:
    _, location = _location(error)
    ending = f", and was{location}" if location else ""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and frames[-1] == "<frozen importlib._bootstrap>":  # this import waits for another one of the same module
        waited = f"{error}, and waited for an earlier import, which has not returned either"
        return Failure(stage, waited, "Mend the plugin, then restart the host.", trace)
    return Failure(stage, f"{error}{ending}", "Mend the plugin, or raise the setting hook_timeout.", trace)


def _location(error: BaseException) -> tuple[str, str]:
    """Return the plugin's package, and the innermost line of its own in the traceback, not of a library."""
    frames = [
        (str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_host_file(frame.f_code.co_filename)
    ]
    package = frames[0][0] if frames else ""
    if _is_syntax_error_in_file(error):
        return package, f" at {Path(error.filename or '').name}:{error.lineno}"
    if not frames:
        return "", ""
    filename, line = next((filename, line) for name, filename, line in reversed(frames) if name == package)
    return package, f" at {Path(filename).name}:{line}"


def _is_syntax_error_in_file(error: BaseException) -> TypeGuard[SyntaxError]:
    """Return whether an error is a syntax error in a file, which names the place itself."""
    return isinstance(error, SyntaxError) and bool(error.filename) and not str(error.filename).startswith("<")


def _one_line_message(error: BaseException) -> str:
    try:
        text = str(error.msg if _is_syntax_error_in_file(error) else error)
        return " ".join(text.split())[:300] or "no message"
    except BaseException:  # noqa: BLE001 - the exception is a plugin's, and its __str__ may raise anything
        return "its message can't be shown"
