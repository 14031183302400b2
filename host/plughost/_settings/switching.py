"""Switch plugins on and off: edit `disabled` in the settings file, and leave the rest of it alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plughost._api.errors import CommandError
from plughost._settings.errors import SettingsError
from plughost._settings.sources import DEFAULT_FILE, read_settings
from plughost._settings.variables import ENV_PREFIX

if TYPE_CHECKING:
    from plughost._plugins.discovery import InstalledPlugin
    from plughost._settings.sources import Settings

_VARIABLE = f"{ENV_PREFIX}DISABLED"


def with_disabled(text: str, names: Collection[str]) -> str:
    """Return a settings file in which just these plugins are disabled. Comments and order stay.

    Raises:
        CommandError: The file is no TOML, or its `disabled` is no list.
    """
    import tomlkit  # noqa: PLC0415 - only who switches a plugin edits the file
    from tomlkit.exceptions import ParseError  # noqa: PLC0415 - as above

    try:
        document = tomlkit.parse(text)
    except ParseError as error:
        raise CommandError(f"The settings file is not valid TOML: {error}") from None
    if "disabled" not in document:
        document["disabled"] = tomlkit.array()
    listed = document["disabled"]
    if not isinstance(listed, tomlkit.items.Array):
        raise CommandError('The setting disabled is no list; write it as disabled = ["messages"].')
    for name in [each for each in listed if each not in names]:
        listed.remove(name)
    for name in names:
        if name not in listed:
            listed.append(name)
    return tomlkit.dumps(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A settings file that was edited.

    Attributes:
        file: The file.
    """

    file: Path
    _before: bytes | None
    _settings: Settings

    def undo(self) -> None:
        """Put the old file back.

        Raises:
            CommandError: The file can't be written.
        """
        with _readable(self.file):
            if self._before is None:
                self.file.unlink()
            else:
                _write(self.file, self._before, self._settings)


def edit_disabled(
    settings: Settings,
    name: str,
    *,
    enabled: bool,
    installed: Iterable[InstalledPlugin],
    without: Collection[str],
) -> Edit:
    """Enable or disable a plugin in the settings file of a running host.

    Raises:
        CommandError: It can't be switched. Nothing has changed.
    """
    try:
        settings, _ = settings.reread()  # somebody may have edited the file since
    except SettingsError as error:
        raise CommandError(f"The settings can't be used as they are: {'; '.join(error.problems)}") from None
    if name not in {each.name for each in installed}:
        raise CommandError(f"No plugin named {name} is installed.")
    if enabled and name in without:
        raise CommandError(f"{name} is skipped by --without; start the host without that.")
    if not enabled and name in settings.host.required:
        raise CommandError(f"The setting required names {name}; take it out there first.")
    listed = [each for each in settings.host.disabled if each != name]
    return write_disabled(settings, listed if enabled else [*listed, name])


def write_disabled(settings: Settings, names: Collection[str]) -> Edit:
    """Write which plugins are disabled.

    The new file is read as settings before it replaces the old one, in one step.

    Raises:
        CommandError: The file can't be written, or would not be valid. Nothing has changed.
    """
    if _VARIABLE in settings.environment:
        raise CommandError(f"The variable {_VARIABLE} overrides the settings file; change or unset it.")
    return _rewrite(settings, lambda text: with_disabled(text, names))


def write_text(settings: Settings, text: str) -> Edit:
    """Replace the settings file by another text, as `write_disabled` does."""
    return _rewrite(settings, lambda _: text)


def _rewrite(settings: Settings, change: Callable[[str], str]) -> Edit:
    file = (settings.file or settings.base / DEFAULT_FILE).resolve()
    with _readable(file):
        before = file.read_bytes() if settings.file is not None else None
        _write(file, change((before or b"").decode()).encode(), settings)
    return Edit(file=file, _before=before, _settings=settings)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"The settings file {file} can't be changed: {error.strerror}.") from error


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
        raise CommandError(f"The settings would not be valid any more:\n{error}") from None
    finally:
        fresh.unlink(missing_ok=True)
