"""Failures: why a plugin does not serve, and what to do about it."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from plughost._api.errors import PluginError
from plughost._plugins.isolation import TookTooLong
from plughost._plugins.single_files import file_of
from plughost._tracebacks import is_host_file

if TYPE_CHECKING:
    from plughost._plugins.discovery import InstalledPlugin


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a plugin does not serve.

    Attributes:
        stage: Where it happened: `import`, `settings`, `conflict`, or the name of a hook.
        cause: What happened, in one line.
        advice: What to do next. Empty where only the plugin's author can mend it: see `advised`.
        trace: The traceback, for the log and who asks for it.
    """

    stage: str
    cause: str
    advice: str = ""
    trace: str = ""

    def __str__(self) -> str:
        """Return the failure in one line."""
        stop = "" if self.cause.endswith(("?", "!")) else "."
        return f"{self.stage}: {self.cause}{stop} {self.advice}"


def advised(failure: Failure, installed: InstalledPlugin) -> Failure:
    """Return a failure with advice. The author of a single file is who reads it, and looks at it with --dev only."""
    if failure.advice:
        return failure
    file = file_of(installed.entry_point)
    if file is None:
        mend, dev = "report it to the plugin's author, or disable the plugin.", ""
    else:
        mend, dev = f"mend {file}, which is your own.", "--dev "
    if not failure.trace:
        return replace(failure, advice=f"{mend[0].upper()}{mend[1:]}")
    shown = f"The traceback is in the log, or shown by `plughost plugins {dev}--why {installed.name}`"
    return replace(failure, advice=f"{shown}; {mend}")


def failure_of(stage: str, raised: BaseException) -> Failure:
    """Return the failure that an exception of a plugin's code stands for, or that it did not return."""
    if isinstance(raised, PluginError):
        return Failure(stage, raised.cause, raised.advice)
    trace = "".join(traceback.format_exception(raised))
    if isinstance(raised, TookTooLong):
        return _timed_out(stage, raised, trace)
    advice = ""
    if isinstance(raised, ImportError):
        package, _ = _place(raised)
        is_own = package and (raised.name or "").partition(".")[0] == package
        own = "Mend the import: it is of a module of the plugin's own."
        advice = own if is_own else "Install what is missing, or upgrade the plugin."
    elif isinstance(raised, PermissionError) and raised.filename:
        advice = f"Let the user that runs plughost read and write {raised.filename}."
    return Failure(stage, cause_of(raised), advice, trace)


def cause_of(raised: BaseException) -> str:
    """Return what a plugin's code has raised, and where in it, in one line."""
    _, place = _place(raised)
    if isinstance(raised, SystemExit):
        return f"it called sys.exit{place}"
    return f"{type(raised).__name__}{place}: {_message(raised)}".rstrip(".")


def _timed_out(stage: str, error: TookTooLong, trace: str) -> Failure:
    _, place = _place(error)
    was = f", and was{place}" if place else ""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and frames[-1] == "<frozen importlib._bootstrap>":  # where one import waits for another of the module
        waited = f"{error}, and waited for an earlier import, which has not returned either"
        return Failure(stage, waited, "Mend the plugin, then restart the host.", trace)
    return Failure(stage, f"{error}{was}", "Mend the plugin, or raise the setting hook_timeout.", trace)


def _place(error: BaseException) -> tuple[str, str]:
    """Return the package that raised, and the line in it: the innermost of its own, not of a library that it uses."""
    frames = [
        (str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_host_file(frame.f_code.co_filename)
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
