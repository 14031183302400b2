"""Change one setting: edit it in the settings file, and leave the rest of the file alone."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final

from plughost._api.errors import CommandError
from plughost._api.values import SettingChange
from plughost._settings.errors import SettingsError
from plughost._settings.sources import DEFAULT_FILE, FIXED, settings_of
from plughost._settings.switching import Edit, write_text
from plughost._settings.variables import ENV_PREFIX

if TYPE_CHECKING:
    from pydantic import BaseModel

    from plughost._settings.sources import Settings

_MASK: Final = "**********"


def with_value(text: str, key: str, value: object) -> str:
    """Return a settings file in which a key has a value; None takes the key out. Comments and order stay.

    Raises:
        CommandError: The file is no TOML, or something else stands where the key's table would.
    """
    import tomlkit  # noqa: PLC0415 - only who changes a setting edits the file
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - as above

    *tables, last = key.split(".")
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for name in tables:
            name = next((each for each in table if each.replace("_", "-") == name.replace("_", "-")), name)  # noqa: PLW2901 - plugins' tables have either
            if name not in table:
                if value is None:
                    return text
                table[name] = tomlkit.table()
            table = table[name]
            if not isinstance(table, MutableMapping):
                raise CommandError(f"{name} in the settings file is no table.")
        if value is not None:
            table[last] = value
        elif last in table:
            del table[last]
    except TOMLKitError as error:
        raise CommandError(f"The settings file can't be edited: {error}") from None
    return tomlkit.dumps(document)


def preview_setting(settings: Settings, models: Mapping[str, BaseModel], key: str, value: object) -> SettingChange:
    """Return what `edit_setting` would do to the file. See there."""
    _, before, after = _edited(settings, models, key, value)
    name = (settings.file or settings.base / DEFAULT_FILE).name
    lines = unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=0)
    fixed = any(key == each or key.startswith(f"{each}.") for each in FIXED)
    return SettingChange(key=key, diff="\n".join(lines), at_restart=fixed)


def edit_setting(settings: Settings, models: Mapping[str, BaseModel], key: str, value: object) -> Edit:
    """Change a setting of a running host in its settings file.

    Args:
        settings: The host's settings.
        models: The validated settings of its plugins, by plugin.
        key: The setting's dotted key.
        value: Its new value, of those that TOML has. None for the default.

    Raises:
        CommandError: It can't be changed so. Nothing has changed.
    """
    settings, _, after = _edited(settings, models, key, value)
    return write_text(settings, after)


def _edited(settings: Settings, models: Mapping[str, BaseModel], key: str, value: object) -> tuple[Settings, str, str]:
    """Return the settings as they are in the file now, that file, and what it would be."""
    try:
        settings, _ = settings.reread()  # somebody may have edited the file since
        _refuse_fixed(settings, models, key)
        before = settings.file.read_text(encoding="utf-8-sig") if settings.file is not None else ""
        after = with_value(before, key, value)
        _validate(settings, models, key, after)
    except SettingsError as error:
        raise CommandError("; ".join(error.problems)) from None
    except OSError as error:
        raise CommandError(f"The settings file can't be read: {error.strerror}.") from None
    return settings, before, after


def _refuse_fixed(settings: Settings, models: Mapping[str, BaseModel], key: str) -> None:
    found = next((each for each in settings.values(models) if each.key == key), None)
    if found is None:
        raise CommandError(f"There is no setting {key}.")
    if found.source.startswith(ENV_PREFIX):
        raise CommandError(f"The variable {found.source} overrides the settings file; change or unset it.")
    if _MASK in str(found.value):
        raise CommandError(f"{key} is a secret: change it in the settings file or by an environment variable.")


def _validate(settings: Settings, models: Mapping[str, BaseModel], key: str, text: str) -> None:
    """Read a text as the settings file, with the plugin's model where the key is a plugin's."""
    new = settings_of(text, settings)
    first, _, rest = key.partition(".")
    if first == "plugins":
        plugin = rest.partition(".")[0]
        new.mount(plugin)
        if plugin in models:
            new.of_plugin(plugin, type(models[plugin]))
