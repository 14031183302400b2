"""The registry: every installed plugin and what became of it, on the way from discovery to serving."""

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
from plughost._api.declarations import Declarations
from plughost._api.errors import PluginError
from plughost._plugins.isolation import Interrupted, TookTooLong, bounded, never
from plughost._plugins.single_files import file_of
from plughost._tracebacks import is_hosts

if TYPE_CHECKING:
    from pydantic import BaseModel

    from plughost._api.context import PluginContext
    from plughost._api.declarations import RouteGroup
    from plughost._plugins.discovery import InstalledPlugin
    from plughost._settings.models import MountSettings


class State(enum.StrEnum):
    """What became of a plugin."""

    ACTIVE = "active"
    DISABLED = "disabled"
    FAILED = "failed"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a plugin does not serve.

    Attributes:
        stage: Where it happened: `import`, `settings`, `conflict`, or the name of a hook.
        cause: What happened, in one line.
        advice: What to do next.
        trace: The traceback, for the log and who asks for it.
    """

    stage: str
    cause: str
    advice: str
    trace: str = ""

    def __str__(self) -> str:
        """Return the failure in one line."""
        stop = "" if self.cause.endswith(("?", "!")) else "."
        return f"{self.stage}: {self.cause}{stop} {self.advice}"


@dataclass(slots=True, eq=False)
class Entry:
    """A plugin on the registry.

    Attributes:
        installed: What discovery says of it.
        state: What became of it.
        reused: Whether it is the very plugin of the previous generation, with its objects and their memory.
        failure: Why, where it does not serve. None where it does or was never meant to.
        trouble: What went wrong once it served: a failing `started` or `stopping`, or that a restart is needed.
        plugin: The loaded module or object.
        hooks: The hooks that it implements.
        settings_model: The model of its settings. None where it has none.
        settings: Its validated settings.
        mount: What the host reads of its settings: site and body limit.
        context: What its hooks are given.
        declared: What it declares.
        authenticator: What it offers to name principals. None where it offers nothing.
        seconds: Seconds that loading and each hook took, by stage. Of a reused plugin, when it was loaded.
    """

    installed: InstalledPlugin
    state: State = State.ACTIVE
    reused: bool = False
    failure: Failure | None = None
    trouble: list[Failure] = field(default_factory=list)
    plugin: Any = None
    hooks: tuple[str, ...] = ()
    settings_model: type[BaseModel] | None = None
    settings: Any = None
    mount: MountSettings = None  # type: ignore[assignment] # read before any hook that takes a context
    context: PluginContext[Any] = None  # type: ignore[assignment] # given before any hook that takes it
    declared: Declarations = field(default_factory=Declarations)
    authenticator: Callable[..., Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.installed.name

    @property
    def sites(self) -> list[str]:
        """The sites that it is mounted on."""
        return sorted({self.site_of(group) for group in self.declared.groups})

    def site_of(self, group: RouteGroup) -> str:
        """Return the site that one of its route groups is mounted on."""
        return self.mount.site or group.site

    def change(self) -> None:
        """Stop reusing it: its hooks are called again, so earlier troubles and times are dropped."""
        self.reused = False
        self.trouble, self.seconds = [], {}


class Registry:
    """The plugins of one build, in the order in which they are asked."""

    def __init__(
        self,
        found: Iterable[InstalledPlugin],
        disabled: Collection[str] = (),
        *,
        timeout: float = 30.0,
        interrupted: Callable[[], bool] = never,
    ) -> None:
        """Register what discovery found. Disabled plugins are never imported.

        An import and each hook may take `timeout` seconds, and are not waited for once `interrupted` says so.
        """
        self._timeout = timeout
        self._interrupted = interrupted
        self.entries: tuple[Entry, ...] = tuple(Entry(each) for each in found)
        self.manager: pluggy.PluginManager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        for entry in self.entries:
            if entry.name in disabled:
                entry.state = State.DISABLED
            elif entry.installed.problem is not None:
                self.fail(entry, Failure("metadata", entry.installed.problem, "Mend that, then reload."))
            elif entry.installed.unmet is not None:
                self._block(entry, entry.installed.unmet, "Install what fits, then reload.")
        self._block_dependents()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def active(self) -> tuple[Entry, ...]:
        """Return the plugins that have not failed so far."""
        return tuple(entry for entry in self.entries if entry.state is State.ACTIVE)

    def get(self, name: str) -> Entry | None:
        """Return the plugin of a name. The one that is used, where two distributions bring it."""
        return next((entry for entry in self.entries if entry.name == name), None)

    def reuse(self, entry: Entry, before: Entry) -> None:
        """Replace an entry by that of the previous generation, with what discovery found now.

        Mutable fields are copied: the previous generation keeps its own if this one is refused.
        """
        copies: dict[str, Any] = {"trouble": list(before.trouble), "seconds": dict(before.seconds)}
        reused = replace(before, installed=entry.installed, reused=True, **copies)
        self.entries = tuple(reused if each is entry else each for each in self.entries)

    def fail(self, entry: Entry, failure: Failure) -> None:
        """Mark a plugin as failed, and those that depend on it as blocked."""
        entry.state = State.FAILED
        entry.failure = failure
        self._block_dependents()

    def attempt(self, entry: Entry, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call what runs a plugin's code. An exception or a timeout fails this plugin and nothing else.

        Returns:
            What the function returned. None where it failed.

        Raises:
            Interrupted: The host is stopping. This is nobody's failure.
        """
        if entry.state is not State.ACTIVE:
            return None
        result, failure = self._call(entry, stage, partial(function, *arguments), self._interrupted)
        if failure is not None:
            self.fail(entry, failure)
        return result

    def call(self, entry: Entry, hook: str) -> Any:
        """Call one plugin's implementation of a hook, and nobody else's.

        Returns:
            What the implementation returned. None where it has none.
        """
        arguments = {} if hook in hookspecs.WITHOUT_CONTEXT else {"context": entry.context}
        others = [plugin for plugin in self.manager.get_plugins() if plugin is not entry.plugin]
        results = self.manager.subset_hook_caller(hook, others)(**arguments)
        return results[0] if results else None

    def notify(self, entry: Entry, hook: str) -> Failure | None:
        """Call a hook of a plugin that serves. A failure is noted as trouble, and it goes on serving.

        Returns:
            What went wrong. None where nothing did.
        """
        _, failure = self._call(entry, hook, partial(self.call, entry, hook))
        if failure is not None:
            entry.trouble.append(failure)
        return failure

    def _call(
        self, entry: Entry, stage: str, call: Callable[[], Any], interrupted: Callable[[], bool] = never
    ) -> tuple[Any, Failure | None]:
        begun = perf_counter()
        try:
            return bounded(call, self._timeout, f"{entry.name}:{stage}", interrupted), None
        except Interrupted:
            raise
        except PluginError as error:
            return None, Failure(stage, error.cause, _addressed(error.advice, entry))
        except TookTooLong as error:
            trace = "".join(traceback.format_exception(error))
            return None, Failure(stage, _hang(error), "Mend the plugin, or raise the setting hook_timeout.", trace)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin that calls sys.exit must not end the host either
            failure = explain(stage, error, entry.name)
            return None, replace(failure, advice=_addressed(failure.advice, entry))
        finally:
            if not entry.reused:
                entry.seconds[stage] = entry.seconds.get(stage, 0.0) + perf_counter() - begun

    def _block_dependents(self) -> None:
        """Block each plugin that depends on one that does not serve. Dependents come last in the order."""
        for entry in self.entries:
            if entry.state is not State.ACTIVE:
                continue
            needed = (self.get(name) for name in entry.installed.requires)
            missing = next((each for each in needed if each is not None and each.state is not State.ACTIVE), None)
            if missing is not None:
                cause = f"it requires {missing.installed.label}, which is {missing.state}"
                self._block(entry, cause, f"Mend or enable {missing.name} first.")

    def _block(self, entry: Entry, cause: str, advice: str) -> None:
        entry.state = State.BLOCKED
        entry.failure = Failure("dependency", cause, advice)


def explain(stage: str, error: BaseException, name: str) -> Failure:
    """Return the failure that an exception of a plugin's code stands for, with the place in its code."""
    package, place = _place(error)
    text = _message(error)
    cause = f"{type(error).__name__}{place}: {text}".rstrip(".")
    if isinstance(error, ImportError) and package and (error.name or "").partition(".")[0] == package:
        advice = "Mend the import: it is of a module of the plugin's own."
    elif isinstance(error, ImportError):
        advice = "Install what is missing, or upgrade the plugin."
    elif isinstance(error, SystemExit):
        cause, advice = f"it called sys.exit{place}", "Report this to the plugin's author."
    elif isinstance(error, PermissionError) and error.filename:
        advice = f"Let the user that runs plughost read and write {error.filename}."
    else:
        advice = (
            f"The traceback is in the log, or shown by `plughost plugins --why {name}`; "
            "report it to the plugin's author, or disable the plugin."
        )
    return Failure(stage, cause, advice, "".join(traceback.format_exception(error)))


def _addressed(advice: str, entry: Entry) -> str:
    """Return advice for whoever reads it: a single file is their own, and is looked at with --dev only."""
    file = file_of(entry.installed.entry_point)
    if file is None:
        return advice
    mend = f"end {file}, which is your own"
    for before, after in (
        ("Report this to the plugin's author", f"M{mend}"),
        ("report it to the plugin's author, or disable the plugin", f"m{mend}"),
        ("plughost plugins --why", "plughost plugins --dev --why"),
    ):
        advice = advice.replace(before, after)
    return advice


def _hang(error: TookTooLong) -> str:
    _, place = _place(error)
    return f"{error}, and was{place}" if place else str(error)


def _place(error: BaseException) -> tuple[str, str]:
    """Return the package that raised, and the line in it: the innermost of its own, not of a library that it uses."""
    frames = [
        (str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_hosts(frame.f_code.co_filename)
    ]
    package = frames[0][0] if frames else ""
    if _is_of_a_file(error):
        return package, f" at {Path(error.filename or '').name}:{error.lineno}"
    if not frames:
        return "", ""
    filename, line = next((filename, line) for name, filename, line in reversed(frames) if name == package)
    return package, f" at {Path(filename).name}:{line}"


def _is_of_a_file(error: BaseException) -> TypeGuard[SyntaxError]:
    """Tell whether an error is of the syntax of a file, and so names the place itself."""
    return isinstance(error, SyntaxError) and bool(error.filename) and not str(error.filename).startswith("<")


def _message(error: BaseException) -> str:
    try:
        text = str(error.msg if _is_of_a_file(error) else error)
        return " ".join(text.split())[:300] or "no message"
    except Exception:  # noqa: BLE001 - the exception is a plugin's, and its __str__ may raise anything
        return "its message can't be shown"
