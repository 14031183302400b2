"""Settings: `plughost.toml` and the environment, validated. Each plugin's own table by its own model."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from plughost._api.host import Value
from plughost._settings.errors import KEYS_LISTER, PLUGINS_LISTER, SettingsError, did_you_mean, problems_of
from plughost._settings.models import HostSettings, MountSettings, StoreTuning
from plughost._settings.variables import ENV_PREFIX, NO_SETTINGS, Variables, names_of, plugin_prefix

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from plughost.stores._config import StoresConfig

DEFAULT_FILE: Final = "plughost.toml"
# What a running host keeps: where it listens, what it shows there, and where its data is.
FIXED: Final = ("address", "data_dir", "log", "plugins_dir", "requests", "sites", "tls.policy", "trusted_proxies")

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a host, read once.

    Attributes:
        file: The TOML file. None where there is none.
        base: The folder that relative paths start from.
        host: The host's own settings.
        tables: The plugins' tables as the file has them, by plugin name.
        environment: The environment that overrides them.
        raw: The host's own settings as the file has them.
    """

    file: Path | None
    base: Path
    host: HostSettings
    tables: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, str]
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        """The absolute data folder."""
        return (self.base / self.host.data_dir.expanduser()).absolute()

    @property
    def stores(self) -> StoresConfig:
        """Where the stores are."""
        from plughost.stores._config import StoresConfig  # noqa: PLC0415 - brings every store's code

        table = self.host.stores
        return StoresConfig(
            folder=self.data_dir / "stores",
            url=table.url.get_secret_value() if table.url is not None else None,
            urls={name: url.get_secret_value() for name, url in table.urls.items()},
            tuned={name: each.model_dump(exclude_unset=True) for name, each in table.tuning.items()},
            **table.model_dump(include=set(StoreTuning.model_fields)),
        )

    def reread(self) -> tuple[Settings, tuple[str, ...]]:
        """Read the file again.

        Returns:
            The settings, in which what can't change while a host runs is as it was, and a line for each such key
            that was changed.

        Raises:
            SettingsError: The settings can't be used any more.
        """
        new = read_settings(self.file, self.environment, self.base)
        changed = [key for key in FIXED if attrgetter(key)(new.host) != attrgetter(key)(self.host)]
        kept = new.host
        for key in changed:
            kept = _with(kept, key, attrgetter(key)(self.host))
        return replace(new, host=kept), tuple(
            f"the setting {key} changed, and is read at start only" for key in changed
        )

    def with_all_enabled(self) -> Settings:
        """Return settings that disable no plugin."""
        return replace(self, host=self.host.model_copy(update={"disabled": ()}))

    def path(self, given: Path | None) -> Path | None:
        """Return a path of the settings made absolute."""
        return None if given is None else (self.base / given.expanduser()).absolute()

    def mount(self, plugin: str) -> MountSettings:
        """Return what the host reads of a plugin's table.

        Raises:
            SettingsError: A value is invalid.
        """
        own = {key: value for key, value in self.tables.get(plugin, {}).items() if key in MountSettings.model_fields}
        return self._validated(MountSettings, plugin, own)

    def of_plugin(self, plugin: str, model: type[ModelT]) -> ModelT:
        """Validate a plugin's table with the plugin's model. Unknown keys are refused whatever the model says.

        Raises:
            SettingsError: A key is unknown or a value is invalid. Every problem is named.
        """
        reserved = sorted(set(MountSettings.model_fields) & set(model.model_fields))
        if reserved:
            where = f"the settings model {model.__name__} has a field {reserved[0]}"
            raise SettingsError([f"{where}, which is the host's: give it another name"])
        table = self.tables.get(plugin, {})
        own = {key: value for key, value in table.items() if key not in MountSettings.model_fields}
        return self._validated(model, plugin, own)

    def _validated(self, model: type[ModelT], plugin: str, table: Mapping[str, Any]) -> ModelT:
        variables = Variables(plugin_prefix(plugin), self.environment)
        try:
            return model.model_validate(_merged(table, variables.values(model)), extra="forbid")
        except ValidationError as error:
            problems = problems_of(error, f"plugins.{plugin}", model, self._name, variables.source)
            raise SettingsError(problems) from None

    @property
    def _name(self) -> str:
        return self.file.name if self.file is not None else "settings"

    def unknown_plugins(self, installed: Iterable[str]) -> list[str]:
        """Return a warning for each table of a plugin that is not installed. Plugins come and go, so it is no error."""
        names = sorted(installed)
        return [
            f"{self._name}: plugins.{name}: no such plugin is installed{did_you_mean(name, names, PLUGINS_LISTER)}"
            for name in sorted(self.tables)
            if name not in names
        ]

    def unknown_variables(self, plugins: Mapping[str, type[BaseModel] | None]) -> list[str]:
        """Return a warning for each `PLUGHOST_` variable that sets nothing.

        It is no error: orchestrators set variables of that form for a service that is called plughost.
        """
        known = set(names_of(HostSettings, ENV_PREFIX))
        for name, model in plugins.items():
            known.update(names_of(MountSettings, plugin_prefix(name)))
            known.update(names_of(model, plugin_prefix(name)) if model is not None else ())
        return [
            f"environment: {name} is no setting{did_you_mean(name, sorted(known), KEYS_LISTER, prefix=ENV_PREFIX)}"
            for name in sorted(self.environment)
            if name.startswith(ENV_PREFIX)
            and not name.startswith(NO_SETTINGS)
            and not any(name == one or name.startswith(f"{one}__") for one in known)
        ]

    def values(self, plugins: Mapping[str, BaseModel | None]) -> Iterator[Value]:
        """Yield every setting in force, those of plugins that have none of their own, too. Secrets are masked."""
        yield from self._values(self.host, "", self.raw, Variables(ENV_PREFIX, self.environment))
        for name, model in plugins.items():
            variables = Variables(plugin_prefix(name), self.environment)
            for each in (self.mount(name), model):
                if each is not None:
                    yield from self._values(each, f"plugins.{name}.", self.tables.get(name, {}), variables)

    def _values(self, model: BaseModel, prefix: str, table: Mapping[str, Any], variables: Variables) -> Iterator[Value]:
        given = variables.values(type(model))
        for path, value, info in _leaves(model):
            source = "default"
            if _has(given, path):
                source = variables.source(path) or "environment"
            elif _has(table, path):
                source = self._name
            shown = _shown(value), _shown(_default(info))
            example = next(iter(info.examples or ()), None)
            yield Value(prefix + ".".join(path), *shown, source, info.description or "", example)


def _with(model: ModelT, key: str, value: Any) -> ModelT:
    """Return a model with another value of a key, which may be that of a table in it."""
    table, _, rest = key.partition(".")
    return model.model_copy(update={table: _with(getattr(model, table), rest, value) if rest else value})


def read_settings(
    file: Path | None = None, environment: Mapping[str, str] | None = None, base: Path | None = None
) -> Settings:
    """Read the settings file and the environment.

    Args:
        file: The TOML file. By default what `PLUGHOST_CONFIG` names, else `plughost.toml` if the folder has one.
        environment: Variables `PLUGHOST_<KEY>` that override the file, nested keys joined by two underscores.
            The process's by default.
        base: The folder that relative paths start from. By default the file's, else the current one.

    Raises:
        SettingsError: The file can't be read, or a setting of the host's own is unknown or invalid.
    """
    environment = dict(os.environ) if environment is None else environment
    file, raw = _found(file, environment.get("PLUGHOST_CONFIG"))
    if base is None:
        base = file.absolute().parent if file is not None else Path.cwd()
    return _settings(raw, file, environment, base)


def settings_of(text: str, like: Settings) -> Settings:
    """Return the settings that a text would be as the file of others.

    Raises:
        SettingsError: It is no TOML, or a setting of the host's own is unknown or invalid.
    """
    file = like.file or like.base / DEFAULT_FILE
    return _settings(_parsed(text, file), file, like.environment, like.base)


def _settings(raw: dict[str, Any], file: Path | None, environment: Mapping[str, str], base: Path) -> Settings:
    tables = _tables(raw.pop("plugins", {}), file)
    place = file.name if file is not None else "settings"
    variables = Variables(ENV_PREFIX, environment)
    values = _merged(raw, variables.values(HostSettings))
    try:
        host = HostSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(problems_of(error, "", HostSettings, place, variables.source)) from None
    return Settings(file=file, base=base, host=host, tables=tables, environment=environment, raw=raw)


def no_settings() -> Settings:
    """Return the settings of a host that has no file and no environment."""
    return _settings({}, None, {}, Path.cwd())


def _found(config: Path | None, variable: str | None) -> tuple[Path | None, dict[str, Any]]:
    """Return the file that counts, if there is one, and what it says; reading it tells whether it is there."""
    file = config or Path(variable or DEFAULT_FILE)
    try:
        return file, _parsed(file.read_text(encoding="utf-8-sig"), file)
    except FileNotFoundError:
        if config is not None:
            told = f"{file}: there is no such file; create it, even empty, or leave --config out"
        elif variable:
            told = f"PLUGHOST_CONFIG: {file}: there is no such file; create it, or unset the variable"
        else:
            return None, {}
    except (OSError, UnicodeDecodeError) as error:
        told = f"{file}: it can't be read: {error}"
    raise SettingsError([told])


def _parsed(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = str(error).replace(r"Illegal character '\n'", "a text lacks its quote at the end of the line")
        raise SettingsError([f"{file}: it is not valid TOML: {told}"]) from None
    except RecursionError:
        raise SettingsError([f"{file}: it is not valid TOML: it nests too deeply"]) from None


def _tables(tables: Any, file: Path | None) -> dict[str, dict[str, Any]]:
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError([f"{file}: plugins: it must hold one table a plugin, such as [plugins.catalog-v1]"])
    by_plugin: dict[str, str] = {}
    for name in tables:
        other = by_plugin.setdefault(name.replace("_", "-"), name)
        if other != name:
            raise SettingsError([f"{file}: plugins.{other} and plugins.{name} are the same plugin: keep one"])
    return {plugin: tables[name] for plugin, name in by_plugin.items()}


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return two nested mappings as one. Where both set a key, high wins."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _leaves(model: BaseModel, *above: str) -> Iterator[tuple[tuple[str, ...], Any, FieldInfo]]:
    """Yield each value that is no table: its path, itself, and its field."""
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, *above, name)
        else:
            yield (*above, name), value, info


def _has(table: Any, path: Iterable[str]) -> bool:
    for name in path:
        if not isinstance(table, Mapping) or name not in table:
            return False
        table = table[name]
    return True


def _default(info: FieldInfo) -> Any:
    """Return the default of a field; None where it has none, or one that depends on other fields."""
    if info.is_required() or (info.default_factory and info.default_factory_takes_validated_data):
        return None
    return info.get_default(call_default_factory=True)


def _shown(value: Any) -> Any:
    """Return a value as it may be shown: of what JSON has, secrets masked."""
    return to_jsonable_python(value, fallback=str, bytes_mode="base64")
