"""Environment variables that set settings, decoded by pydantic-settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from plughost._settings.errors import SettingsError

ENV_PREFIX: Final = "PLUGHOST_"
# Variables with the prefix that are not settings: the path of the settings file, and the services of the test suites.
NOT_SETTINGS: Final = ("PLUGHOST_CONFIG", "PLUGHOST_TEST_")


def plugin_prefix(plugin: str) -> str:
    """Return the prefix of the variables that set a plugin's settings."""
    return f"{ENV_PREFIX}PLUGINS__{plugin.replace('-', '_').upper()}__"


def variable_names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield the names of the variables that set a model's fields."""
    for name, info in model.model_fields.items():
        yield f"{prefix}{name}".upper()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from variable_names(info.annotation, f"{prefix}{name}__")


class Variables:
    """The environment variables of one prefix, decoded for a model.

    Attributes:
        values: What they set, nested.
    """

    def __init__(self, model: type[BaseModel], prefix: str, environment: Mapping[str, str]) -> None:
        """Decode the variables."""
        self.values: dict[str, Any] = {}
        self._sources: dict[tuple[str, ...], str] = {}
        malformed = []
        for name, value in sorted(environment.items()):
            if value and name.startswith(prefix) and name.isupper():  # an empty one counts as not set
                decoded = _decode(model, prefix, name, value)
                if decoded is None:
                    malformed.append(name)
                else:
                    self.values = merge(self.values, decoded)
                    self._sources |= {path: name for path, _ in leaves(decoded)}
        if malformed:
            example = 'write a list as ["a", "b"], a table as {"key": "value"}'
            raise SettingsError([f"environment: {name}: it is not valid JSON; {example}" for name in malformed])

    def source(self, path: Sequence[str]) -> str | None:
        """Return the variable that sets a key, a key below it, or the table that the key is in."""
        wanted = tuple(path)
        return next((name for key, name in self._sources.items() if key[: len(wanted)] == wanted[: len(key)]), None)


def leaves(table: Mapping[str, Any] | list[Any], *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and value of all that is in a table, its tables and lists. An empty one is a value, too."""
    for key, value in table.items() if isinstance(table, Mapping) else enumerate(table):
        path = (*above, str(key))
        if isinstance(value, Mapping | list) and value:
            yield from leaves(value, *path)
        else:
            yield path, value


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested mappings. Where both set a key, `high` wins."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _decode(model: type[BaseModel], prefix: str, name: str, value: str) -> dict[str, Any] | None:
    """Return what a variable sets in a model. None if it sets a list or a table, and is not valid JSON."""
    import pydantic_settings  # noqa: PLC0415 - slow to import, and few hosts set variables

    source = pydantic_settings.EnvSettingsSource(
        pydantic_settings.BaseSettings,
        env_prefix=prefix,
        env_nested_delimiter="__",
        case_sensitive=False,
    )
    source.settings_cls = model  # type: ignore[assignment] # it only reads the fields, which any model has
    source.env_vars = {name.lower(): value}
    try:
        return source()
    except pydantic_settings.SettingsError:
        return None
