"""Environment variables that set settings, decoded by pydantic-settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment variables of one prefix."""

    prefix: str
    environment: Mapping[str, str]

    def values(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return the values that they set in a model, nested and decoded.

        Raises:
            SettingsError: A list or a table is not valid JSON.
        """
        own = {
            name: value for name, value in self.environment.items() if name.startswith(self.prefix) and name.isupper()
        }
        if not own:
            return {}
        malformed = [name for name in sorted(own) if not self._is_json(model, name)]
        if malformed:
            example = 'write a list as ["a", "b"], a table as {"key": "value"}'
            raise SettingsError([f"environment: {name}: it is not valid JSON; {example}" for name in malformed])
        return _decode(model, self.prefix, own)

    def source(self, path: Sequence[str]) -> str | None:
        """Return the variable that sets a key: its own, that of a key below it, or that of a table above it."""
        own = self._name(path)
        below = (name for name in sorted(self.environment) if name.startswith(f"{own}__"))
        above = (self._name(path[:length]) for length in range(len(path) - 1, 0, -1))
        return next((name for name in (own, *below, *above) if self.environment.get(name)), None)

    def _is_json(self, model: type[BaseModel], name: str) -> bool:
        """Return whether a variable can be decoded. That of a number, for example, needs no decoding."""
        from pydantic_settings import SettingsError as DecodeError  # noqa: PLC0415 - see _decode

        try:
            _decode(model, self.prefix, {name: self.environment[name]})
        except DecodeError:
            return False
        return True

    def _name(self, path: Sequence[str]) -> str:
        return self.prefix + "__".join(path).upper()


def _decode(model: type[BaseModel], prefix: str, environment: Mapping[str, str]) -> dict[str, Any]:
    from pydantic_settings import BaseSettings, EnvSettingsSource  # noqa: PLC0415 - slow to import, and few hosts set variables

    source = EnvSettingsSource(
        BaseSettings, env_prefix=prefix, env_nested_delimiter="__", case_sensitive=False, env_ignore_empty=True
    )
    source.settings_cls = model  # type: ignore[assignment] # it only reads the fields, which any model has
    source.env_vars = {name.lower(): value for name, value in environment.items()}
    return source()
