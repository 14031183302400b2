"""Environment variables that set settings, decoded as pydantic-settings does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from plughost._settings.errors import SettingsError

ENV_PREFIX: Final = "PLUGHOST_"
# Variables of the prefix that are no settings: where the settings are, and where the test suites find services.
NO_SETTINGS: Final = ("PLUGHOST_CONFIG", "PLUGHOST_TEST_")


def plugin_prefix(plugin: str) -> str:
    """Return what the environment variables of a plugin's settings begin with."""
    return f"{ENV_PREFIX}PLUGINS__{plugin.replace('-', '_').upper()}__"


def names_of(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield the variables that set a model's fields."""
    for name, info in model.model_fields.items():
        yield f"{prefix}{name}".upper()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from names_of(info.annotation, f"{prefix}{name}__")


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment variables of one prefix."""

    prefix: str
    environment: Mapping[str, str]

    def values(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return what they set of a model, nested and decoded.

        Raises:
            SettingsError: A list or a table is no JSON.
        """
        own = {
            name: value
            for name, value in self.environment.items()
            if name.startswith(ENV_PREFIX) and name.upper().startswith(self.prefix)
        }
        if not own:
            return {}
        malformed = [name for name in sorted(own) if not self._is_json(model, name)]
        if malformed:
            example = 'write a list as ["a", "b"], a table as {"key": "value"}'
            raise SettingsError([f"environment: {name}: it is not valid JSON; {example}" for name in malformed])
        return _decoded(model, self.prefix, own)

    def source(self, path: Sequence[str]) -> str | None:
        """Return the variable that sets a key: its own, one of a key in it, or one of a table around it."""
        own = self._name(path)
        below = (name for name in sorted(self.environment) if name.startswith(f"{own}__"))
        above = (self._name(path[:length]) for length in range(len(path) - 1, 0, -1))
        return next((name for name in (own, *below, *above) if self.environment.get(name)), None)

    def _is_json(self, model: type[BaseModel], name: str) -> bool:
        """Return whether a variable can be decoded, or needs not to be, as that of a number."""
        from pydantic_settings import SettingsError as Undecodable  # noqa: PLC0415 - see _decoded

        try:
            _decoded(model, self.prefix, {name: self.environment[name]})
        except Undecodable:
            return False
        return True

    def _name(self, path: Sequence[str]) -> str:
        return self.prefix + "__".join(path).upper()


def _decoded(model: type[BaseModel], prefix: str, environment: Mapping[str, str]) -> dict[str, Any]:
    from pydantic_settings import BaseSettings, EnvSettingsSource  # noqa: PLC0415 - few hosts set variables; takes long

    source = EnvSettingsSource(
        BaseSettings, env_prefix=prefix, env_nested_delimiter="__", case_sensitive=False, env_ignore_empty=True
    )
    source.settings_cls = model  # type: ignore[assignment] # any model has the fields that it reads
    source.env_vars = {name.lower(): value for name, value in environment.items()}
    return source()
