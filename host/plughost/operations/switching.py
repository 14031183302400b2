"""Switch plugins on and off: edit `disabled` in the settings file, and leave the rest of it alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import ParseError

from plughost.operations import OperationError
from plughost.settings import DEFAULT_FILE, ENV_PREFIX, SettingsError, read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost.host import Host
    from plughost.reports import ReloadReport
    from plughost.settings import Settings

_VARIABLE = f"{ENV_PREFIX}DISABLED"


def with_disabled(text: str, names: Collection[str]) -> str:
    """Return a settings file in which just these plugins are disabled; comments and order stay.

    Args:
        text: The file as it is.
        names: Every plugin that is disabled afterwards.

    Raises:
        OperationError: The file is no TOML, or its `disabled` is no list.
    """
    try:
        document = tomlkit.parse(text)
    except ParseError as error:
        raise OperationError(f"The settings file is not valid TOML: {error}") from None
    if "disabled" not in document:
        document["disabled"] = tomlkit.array()
    listed = document["disabled"]
    if not isinstance(listed, tomlkit.items.Array):
        raise OperationError('The setting disabled is no list; write it as disabled = ["messages"].')
    for name in [each for each in listed if each not in names]:
        listed.remove(name)
    for name in names:
        if name not in listed:
            listed.append(name)
    return tomlkit.dumps(document)


def switch(
    settings: Settings, names: Sequence[str], take_up: Callable[[], Mapping[str, Any] | None], *, keep: bool = False
) -> tuple[Path, bool, Mapping[str, Any] | None]:
    """Write which plugins are disabled, and let the running host take it up.

    The new file is read as settings before it replaces the old one, in one step. Where the host can't serve with it,
    the old file is put back.

    Args:
        settings: The settings as they are.
        names: Every plugin that is disabled afterwards.
        take_up: Lets the running host take the change up, and returns its report; None where none runs.
        keep: Leave the new file even if the running host refuses it.

    Returns:
        The file; whether the old one was put back; and the report.

    Raises:
        OperationError: The file can't be written, or would not be valid; nothing has changed.
    """
    if _VARIABLE in settings.environment:
        raise OperationError(f"The variable {_VARIABLE} overrides the settings file; change or unset it.")
    file = (settings.file or settings.base / DEFAULT_FILE).resolve()
    try:
        before = file.read_bytes() if settings.file is not None else None
        _write(file, with_disabled((before or b"").decode(), names).encode(), settings)
        report = take_up()
        undone = report is not None and bool(report["problems"]) and not keep
        if undone and before is not None:
            _write(file, before, settings)
        elif undone:
            file.unlink()
    except OSError as error:
        raise OperationError(f"The settings file {file} can't be changed: {error.strerror}.") from error
    return file, undone, report


def switch_plugin(host: Host, name: str, *, enabled: bool) -> ReloadReport:
    """Enable or disable a plugin of a host that runs in this process; see `Host.switch`."""
    try:
        settings, _ = host.settings.reread()  # somebody may have edited the file since
    except SettingsError as error:
        raise OperationError(f"The settings can't be used as they are: {'; '.join(error.problems)}") from None
    found = host.survey().plugins
    if name not in {each.name for each in found}:
        raise OperationError(f"No plugin named {name} is installed.")
    if enabled and name in host.skipped:
        raise OperationError(f"{name} is skipped by --without; start the host without that.")
    if not enabled and name in settings.host.required:
        raise OperationError(f"The setting required names {name}; take it out there first.")
    listed = [each for each in settings.host.disabled if each != name]
    disabled = listed if enabled else [*listed, name]
    dependents = [] if enabled else [each.name for each in found if name in each.requires]
    reports: list[ReloadReport] = []

    def take_up() -> Mapping[str, Any]:
        reports.append(host.reload(dependents))
        return reports[-1].as_plain()

    switch(settings, disabled, take_up)
    return reports[-1]


def _write(file: Path, content: bytes, settings: Settings) -> None:
    """Replace the file in one step, by what is valid."""
    fresh = file.with_name(f".{file.name}.plughost-new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)
        read_settings(fresh, settings.environment, settings.base)
        if not file.exists():
            fresh.chmod(0o644)  # it holds no secret, and the host may run as another user
        else:
            state = file.stat()
            fresh.chmod(state.st_mode & 0o777)
            with suppress(PermissionError):
                os.chown(fresh, state.st_uid, state.st_gid)
        fresh.replace(file)
    except SettingsError as error:
        raise OperationError(f"The settings would not be valid any more:\n{error}") from None
    finally:
        fresh.unlink(missing_ok=True)
