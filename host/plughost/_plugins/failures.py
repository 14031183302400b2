"""Failures: why a plugin does not serve, with its place, cause and advice. The registry records them."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from plughost._api.bounded import TookTooLong
from plughost._api.errors import PluginError
from plughost._tracebacks import is_host_file

if TYPE_CHECKING:
    from plughost._plugins.environment import InstalledPlugin


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
        imported = (raised.name or "").partition(".")[0]
        advice = "Install what is missing, or upgrade the plugin."
        if imported == "plughost":
            advice = "This version of plughost has no such name: upgrade the plugin or plughost, whichever is older."
        elif package and imported == package:
            advice = "Mend the import: it is of a module of the plugin's own."
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
