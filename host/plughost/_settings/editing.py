"""Edit the settings file: change one setting, and leave the rest of the file alone.

What is not possible or not valid raises `CommandError`, and nothing has changed.
"""

from __future__ import annotations

import fcntl
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plughost._api.errors import CommandError
from plughost._api.host import SettingChange
from plughost._files import remove_leftovers, replace_file
from plughost._settings.errors import SettingsError
from plughost._settings.masking import MASK
from plughost._settings.sources import ENV_PREFIX, RESTART_ONLY, leaves, parse_settings

if TYPE_CHECKING:
    from pydantic import BaseModel

    from plughost._api.host import Value
    from plughost._settings.sources import Settings

    Models = Mapping[str, BaseModel | None]


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a settings file, with its content before (None if it did not exist) and after."""

    file: Path
    key: str
    before: bytes | None
    after: str

    def preview(self) -> SettingChange:
        """Return what `apply` would change in the file."""
        old, name = (self.before or b"").decode("utf-8-sig"), self.file.name
        lines = unified_diff(old.splitlines(), self.after.splitlines(), name, name, lineterm="", n=0)
        fixed = any(self.key == each or self.key.startswith(f"{each}.") for each in RESTART_ONLY)
        return SettingChange(key=self.key, diff="\n".join(lines), at_restart=fixed)

    def apply(self) -> None:
        _write(self.file, self.after.encode())

    def undo(self) -> None:
        """Restore the file. If somebody has edited it since, keep that, and raise `CommandError`."""
        with _as_command_error(self.file):
            if self.file.read_bytes() != self.after.encode():
                raise CommandError(f"{self.file} was edited meanwhile, so {self.key} was not set back: do it by hand.")
        _write(self.file, self.before)


@contextmanager
def editing(settings: Settings, on_wait: Callable[[str], object] = lambda _: None) -> Iterator[Settings]:
    """Keep others from editing the settings file until the block ends, which has taken its edit up or undone it.

    Args:
        settings: They name the file.
        on_wait: Called with what to say if others are editing it, before they are waited for.

    Yields:
        The settings as the file has them now.
    """
    folder = settings.default_file.resolve().parent
    with _as_command_error(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems lock no folder
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait(f"Waiting for another command that changes the settings in {folder}. Is it stopped by Ctrl+Z?")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            now, _ = settings.reread()  # somebody may have edited the file since
        except SettingsError as error:
            raise CommandError(f"The settings can't be used as they are: {'; '.join(error.problems)}") from None
        yield now
    finally:
        os.close(descriptor)


def with_value(text: str, key: str, value: object) -> str:
    """Return the text of a settings file with a key set to a value, or removed for None. Comments and order stay."""
    import tomlkit  # noqa: PLC0415 - needed only to change a setting
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - as above

    if text and not text.endswith("\n"):
        text += "\n"  # tomlkit would append to the last line
    try:
        document, expected = tomlkit.parse(text), tomllib.loads(text)
        _change(document, key, value, tomlkit.table)
        _change(expected, key, value, dict)
        changed = tomlkit.dumps(document)
        if _values(tomllib.loads(changed)) == _values(expected):
            return changed
    except TOMLKitError as error:
        raise CommandError(f"The settings file can't be edited: {error}") from None
    except ValueError:  # tomlkit can't do it, or wrote what is no TOML
        pass
    # Such as a new table, which may stand before keys of none.
    raise CommandError(f"{key} can't be changed without changing other settings: edit the settings file by hand.")


def _change(table: Any, key: str, value: object, new_table: Callable[[], Any]) -> None:
    """Set a key below a table, or remove it for None."""
    *tables, last = key.split(".")
    for name in tables:
        name = next((each for each in table if each.replace("_", "-") == name.replace("_", "-")), name)  # noqa: PLW2901 - a plugin's table may be written with either
        if name not in table:
            if value is None:
                return
            table[name] = new_table()
        table = table[name]
        if not isinstance(table, MutableMapping):
            raise CommandError(f"{name} in the settings file is no table.")
    if value is not None:
        _set_value(table, last, value)
    elif last in table:
        del table[last]


def _values(table: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return the values of a table and its tables by path. An empty table, which dotted keys leave, is none."""
    return {path: value for path, value in leaves(table) if not isinstance(value, Mapping)}


def _set_value(table: Any, key: str, value: object) -> None:
    """Set a key. A list is edited in place if the order allows that, so members that stay keep their comments."""
    current = table.get(key)
    if isinstance(value, list) and isinstance(current, list):
        for each in [each for each in current if each not in value]:
            current.remove(each)
        for each in value:
            if each not in current:
                current.append(each)
        if list(current) == value:
            return
    table[key] = value


def edit_setting(settings: Settings, models: Models, key: str, value: object) -> Edit:
    """Return the edit that sets a key: the host's, or a plugin's if its model is given. None restores the default."""
    try:
        settings, _ = settings.reread()  # somebody may have edited the file since
        found = next((each for each in settings.values(models) if each.key == key), None)
        if found is None:
            raise CommandError(f"There is no setting {key}.")
        if found.source.startswith(ENV_PREFIX):
            raise CommandError(f"The variable {found.source} overrides the settings file; change or unset it.")
        _refuse_secret(found)
        file = settings.default_file.resolve()
        with _as_command_error(file):
            before = file.read_bytes() if settings.file is not None else None
        after = with_value((before or b"").decode("utf-8-sig"), key, value)
        new = parse_settings(after, settings)
        changed: dict[str, BaseModel | None] = {}
        if key.startswith("plugins."):
            plugin = key.split(".")[1]
            model = models.get(plugin)
            changed[plugin] = new.plugin_settings(plugin, type(model)) if model is not None else None
        for each in new.values(changed):
            if each.key == key:
                _refuse_secret(each)
    except SettingsError as error:
        raise CommandError("; ".join(error.problems)) from None
    return Edit(file, key, before, after)


def _refuse_secret(setting: Value) -> None:
    if MASK in str(setting.value):
        raise CommandError(f"{setting.key} is a secret: change it in the settings file or by an environment variable.")


@contextmanager
def _as_command_error(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"The settings file {file} can't be changed: {error.strerror}.") from error


def _write(file: Path, content: bytes | None) -> None:
    """Replace the file in one step, or remove it for None. Its mode and owner stay."""
    with _as_command_error(file):
        if content is None:
            file.unlink()
            return
        remove_leftovers(file)
        if not file.exists():  # readable by all: it holds no secret, and the host may run as another user
            replace_file(file, content, 0o644)
            return
        state = file.stat()
        replace_file(file, content, state.st_mode & 0o777, (state.st_uid, state.st_gid))
