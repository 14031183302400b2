"""Runs pip for the host's own environment."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from plughost import CommandError
from plughost_packages import careful_pip

Tell = Callable[[str], None]
"""Called with each line that pip prints, immediately."""

OLDEST: Final = "22.3"
"""The oldest supported pip: older ones have no installation report, or another format."""

_LAST_LINES: Final = 12
_NOT_FOUND: Final = re.compile(r"ERROR: No matching distribution found for (?P<name>[\w.-]+)")
_REFUSED: Final = re.compile(r"Could not fetch URL \S+: (?!404 ).*")  # 404 is an index without the distribution
_VARIABLES: Final = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_QUIET": "0",  # else `pip config list` prints nothing
    # The environment to change is this one, and what to install is in the arguments. pip ignores empty variables.
    **dict.fromkeys(["PIP_DRY_RUN", "PIP_PREFIX", "PIP_REQUIREMENT", "PIP_ROOT", "PIP_TARGET", "PIP_USER"], ""),
}


class PipError(CommandError):
    """pip failed; the message contains its errors."""


class NotFound(PipError):  # noqa: N818 - reads better in an except clause
    """pip reached all sources, and none has a distribution."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def pip_command() -> list[str]:
    """Return the command that runs pip for this environment: its own pip, else the one bundled with Python."""
    isolated = [sys.executable, "-P"]  # ignore modules in the current folder
    if importlib.util.find_spec("pip") is not None:
        version = metadata.version("pip")
        if Version(version) < Version(OLDEST):
            raise CommandError(
                f"The environment {sys.prefix} has pip {version}, but {OLDEST} or newer is needed: "
                f"{sys.executable} -m pip install --upgrade pip"
            )
        return [*isolated, "-m", "pip"]
    bundled = importlib.util.find_spec("ensurepip")
    folders = (bundled.submodule_search_locations if bundled is not None else None) or []
    places = [Path(folder, "_bundled") for folder in folders]
    if shared := sysconfig.get_config_var("WHEEL_PKG_DIR"):  # where Debian and Fedora have it
        places.append(Path(shared))
    wheels = sorted(wheel for place in places for wheel in place.glob("pip-*.whl"))
    if wheels:
        return [*isolated, str(wheels[-1] / "pip")]
    fix = f"uv pip install --python {sys.executable} pip" if shutil.which("uv") else "python -m ensurepip"
    raise CommandError(f"The environment {sys.prefix} has no pip, which this command needs. Install it: {fix}")


def run(arguments: Sequence[str], tell: Tell, places: Collection[str] | None = None) -> None:
    """Run pip, and wait for it.

    `arguments` are the command and its options, such as `["install", "plughost-messages"]`. `places` are the URLs that
    packages may name in their requirements; any by default.

    Raises:
        NotFound: No source has a distribution.
        PipError: pip failed for another reason.
        CommandError: pip is missing or too old, or a package names another URL, which was not opened.
    """
    with tempfile.TemporaryDirectory(prefix="plughost-") as folder:
        log = Path(folder, "log")  # pip tells only there what an index answered
        lines, code = _run(["--log", str(log), *arguments], tell, places)
        if code != 0:
            refusals = _REFUSED.findall(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else []
            raise _error(arguments[0], lines, code, dict.fromkeys(refusals))


def _run(arguments: Sequence[str], tell: Tell, places: Collection[str] | None) -> tuple[list[str], int]:
    """Return the lines that pip printed, and its exit code."""
    lines: list[str] = []
    command = pip_command()
    location = "" if "-m" in command else str(Path(command[-1]).parent)
    allowed = None if places is None else [*places]
    process = subprocess.Popen(  # noqa: S603 - pip, with what the operator gave  # nosec B603
        [*command[:2], str(careful_pip.__file__)],
        env={**os.environ, **_VARIABLES},
        close_fds=False,  # it inherits the lock of the environment
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:  # if it ends at once, its output says why
            json.dump({"location": location, "places": allowed, "arguments": [*arguments]}, process.stdin)
        with process.stdout:
            for line in process.stdout:
                lines.append(line.rstrip())
                tell(lines[-1].strip())
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()  # what it did is undone next, which must not be while it goes on
        raise
    return lines, process.wait()


def _error(command: str, lines: Sequence[str], code: int, refusals: Collection[str]) -> CommandError:
    if code < 0:  # as when memory runs out
        number, name = -code, signal.strsignal(-code)
        return PipError(f"pip {command} was ended by the signal {number} ({name}). The system's log may say why.")
    errors = [line for line in lines if line.startswith("ERROR: ") and line != "ERROR: Exception:"]
    foreign_url = next((line for line in errors if careful_pip.TOLD in line), None)
    if foreign_url is not None:
        return CommandError(foreign_url.removeprefix("ERROR: "))
    last = -1 if "ERROR: Exception:" in lines else -_LAST_LINES  # a traceback ends with the reason
    output = "\n".join([*(errors or [line for line in lines if line][last:]), *refusals])
    message = f"pip {command} failed:\n{output or f'exit code {code}'}"
    missing = next(filter(None, map(_NOT_FOUND.match, errors)), None)
    return NotFound(message, missing["name"]) if missing and not refusals else PipError(message)


def configures(option: str) -> bool:
    """Return whether pip's own configuration, in files or variables, sets an option such as `index-url`."""
    lines: list[str] = []
    run(["config", "list"], lines.append)
    return any(re.match(rf"\S*\.{option}=(?!''$)", line) for line in lines)


def report(arguments: Sequence[str], tell: Tell, places: Collection[str] = ()) -> list[dict[str, Any]]:
    """Let pip resolve an installation without doing it. Return the items of `install` in its report.

    Arguments and errors are as for `run`.
    """
    with tempfile.TemporaryDirectory(prefix="plughost-") as folder:
        file = Path(folder, "report.json")
        run(["install", "--dry-run", "--report", str(file), *arguments], tell, places)
        items: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["install"]
    return items
