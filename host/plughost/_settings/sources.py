"""Settings: `plughost.toml` and the environment, validated. Each plugin's own table by its own model.

Settings that can't be used raise `SettingsError`, which names every problem.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from plughost._api.host import Value
from plughost._settings.errors import PLUGINS_LISTER, VARIABLES_LISTER, SettingsError, describe_problems, did_you_mean
from plughost._settings.masking import mask_urls
from plughost._settings.models import HostSettings, MountSettings, StoreTuning

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from plughost.stores._config import StoresConfig

ENV_PREFIX: Final = "PLUGHOST_"
# Variables with the prefix that are not settings: the path of the settings file, and the services of the test suites.
NOT_SETTINGS: Final = ("PLUGHOST_CONFIG", "PLUGHOST_TEST_")

DEFAULT_FILE: Final = "plughost.toml"
# Settings that are read at start only; a reload keeps their old values.
RESTART_ONLY: Final = (
    "address",
    "data_dir",
    "log",
    "plugins_dir",
    "requests",
    "sites",
    "tls.policy",
    "trusted_proxies",
)
ModelT = TypeVar("ModelT", bound=BaseModel)


def _to_json(value: Any) -> Any:
    """Return a value as it is shown, with its secrets masked."""
    return mask_urls(to_jsonable_python(value, fallback=str, bytes_mode="base64"))


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
    """The environment variables of one prefix, decoded for a model: `values` is what they set, nested."""

    def __init__(self, model: type[BaseModel], prefix: str, environment: Mapping[str, str]) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a host, as read at one moment.

    Attributes:
        file: The TOML file. None where there is none.
        base: The folder that relative paths start from.
        host: The host's own settings.
        tables: The plugins' tables as written in the file, by plugin name.
        environment: The environment that overrides them.
        raw: The host's own settings as written in the file.
    """

    file: Path | None
    base: Path
    host: HostSettings
    tables: Mapping[str, Mapping[str, Any]]
    environment: Mapping[str, str]
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def default_file(self) -> Path:
        """The TOML file, even where there is none yet."""
        return self.file or self.base / DEFAULT_FILE

    @property
    def data_dir(self) -> Path:
        """The absolute data folder."""
        return (self.base / self.host.data_dir.expanduser()).absolute()

    @property
    def stores(self) -> StoresConfig:
        """Where the stores are, and how they are opened."""
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
        """Read the file again. Return the settings, and a line for each changed key that takes effect only at a start.

        Such keys keep their old values.
        """
        new = read_settings(self.file, self.environment, self.base)
        changed = [key for key in RESTART_ONLY if attrgetter(key)(new.host) != attrgetter(key)(self.host)]
        host = new.host
        for key in changed:
            host = _replace_value(host, key, attrgetter(key)(self.host))
        return replace(new, host=host), tuple(
            f"the setting {key} changed, and is read at start only" for key in changed
        )

    def with_all_enabled(self) -> Settings:
        return replace(self, host=self.host.model_copy(update={"disabled": ()}))

    def path(self, given: Path | None) -> Path | None:
        """Return a path of the settings made absolute."""
        return None if given is None else (self.base / given.expanduser()).absolute()

    def plugin_settings(self, plugin: str, model: type[ModelT]) -> ModelT:
        """Validate a plugin's table with the plugin's model, or the host's part of it with `MountSettings`.

        Unknown keys are refused even if the model allows them.
        """
        is_host_part = model is MountSettings
        table = self.tables.get(plugin, {})
        own = {key: value for key, value in table.items() if (key in MountSettings.model_fields) is is_host_part}
        variables = Variables(model, plugin_prefix(plugin), self.environment)
        return _validate(model, own, variables, f"plugins.{plugin}", self._name)

    @property
    def _name(self) -> str:
        return self.file.name if self.file is not None else "settings"

    def unknown_plugins(self, installed: Iterable[str]) -> list[str]:
        """Return a warning for each table of a plugin that is not installed. It is no error: it may come back."""
        names = sorted(installed)
        return [
            f"{self._name}: plugins.{name}: no such plugin is installed{did_you_mean(name, names, PLUGINS_LISTER)}"
            for name in sorted(self.tables)
            if name not in names
        ]

    def unknown_variables(self, plugins: Mapping[str, BaseModel | None], unread: Iterable[str] = ()) -> list[str]:
        """Return a warning for each `PLUGHOST_` variable that sets nothing, given the settings of all plugins.

        It is no error: an orchestrator sets such variables itself for a service named plughost. The models of `unread`
        plugins are not known, such as of disabled ones: each of their variables may be right.
        """
        passed = (*NOT_SETTINGS, *map(plugin_prefix, unread))
        readers: list[tuple[type[BaseModel], str]] = [(HostSettings, ENV_PREFIX)]
        for plugin, model in plugins.items():
            models = (MountSettings, *([type(model)] if model is not None else ()))
            readers += ((each, plugin_prefix(plugin)) for each in models)
        known = {name for reader in readers for name in variable_names(*reader)}
        return [
            f"environment: {name} is no setting{did_you_mean(name, sorted(known), VARIABLES_LISTER, prefix=ENV_PREFIX)}"
            for name in sorted(self.environment)
            if name.startswith(ENV_PREFIX)
            and not name.startswith(passed)
            and not (name.isupper() and any(_decode(*reader, name, "{}") for reader in readers))
        ]

    def values(self, plugins: Mapping[str, BaseModel | None]) -> Iterator[Value]:
        """Yield every setting in force, including the host's part of each plugin's table. Secrets are masked."""
        yield from self._values(self.host, "", self.raw, ENV_PREFIX)
        for name, model in plugins.items():
            for each in (self.plugin_settings(name, MountSettings), model):
                if each is not None:
                    yield from self._values(each, f"plugins.{name}.", self.tables.get(name, {}), plugin_prefix(name))

    def _values(
        self, model: BaseModel, prefix: str, table: Mapping[str, Any], variables_prefix: str
    ) -> Iterator[Value]:
        variables = Variables(type(model), variables_prefix, self.environment)
        in_file = {path[:length] for path, _ in leaves(table) for length in range(len(path) + 1)}
        for path, value, info in _leaves(model):
            source = variables.source(path) or (self._name if path in in_file else "default")
            shown = _to_json(value), _to_json(_default(info))
            example = next(iter(info.examples or ()), None)
            yield Value(prefix + ".".join(path), *shown, source, info.description or "", example)


def _validate(model: type[ModelT], table: Mapping[str, Any], variables: Variables, name: str, place: str) -> ModelT:
    """Validate a table, overridden by variables. Unknown keys are refused even if the model allows them."""
    try:
        return model.model_validate(merge(table, variables.values), extra="forbid")
    except ValidationError as error:
        raise SettingsError(describe_problems(error, name, model, place, variables.source)) from None


def _replace_value(model: ModelT, key: str, value: Any) -> ModelT:
    table, _, rest = key.partition(".")
    return model.model_copy(update={table: _replace_value(getattr(model, table), rest, value) if rest else value})


def read_settings(
    file: Path | None = None, environment: Mapping[str, str] | None = None, base: Path | None = None
) -> Settings:
    """Read the settings file and the environment, whose variables `PLUGHOST_<KEY>` override the file.

    Without a file, it is the one that `PLUGHOST_CONFIG` names, else `plughost.toml` if it exists. Relative paths start
    from `base`: by default the file's folder, else the current one.
    """
    environment = dict(os.environ) if environment is None else environment
    file, raw = _read_file(file, environment.get("PLUGHOST_CONFIG"), base or Path.cwd())
    if base is None:
        base = file.parent if file is not None else Path.cwd()
    return _build_settings(raw, file, environment, base)


def parse_settings(text: str, like: Settings) -> Settings:
    """Parse a text as if it were the file of other settings."""
    return _build_settings(_parse_toml(text, like.default_file), like.default_file, like.environment, like.base)


def _build_settings(raw: dict[str, Any], file: Path | None, environment: Mapping[str, str], base: Path) -> Settings:
    tables = _normalize_tables(raw.pop("plugins", {}), file)
    place = file.name if file is not None else "settings"
    host = _validate(HostSettings, raw, Variables(HostSettings, ENV_PREFIX, environment), "", place)
    return Settings(file=file, base=base, host=host, tables=tables, environment=environment, raw=raw)


def default_settings() -> Settings:
    """Return the settings of a host without a file and without variables."""
    return _build_settings({}, None, {}, Path.cwd())


def _read_file(config: Path | None, variable: str | None, folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the settings file, if there is one, and its content. Opening it is the check that it exists.

    The path returned is absolute: a plugin may change the current folder.
    """
    file = config or Path(variable or DEFAULT_FILE)
    try:
        return folder / file, _parse_toml((folder / file).read_text(encoding="utf-8-sig"), file)
    except FileNotFoundError:
        if config is not None:
            problem = f"{file}: there is no such file; create it, even empty, or leave --config out"
        elif variable:
            problem = f"PLUGHOST_CONFIG: {file}: there is no such file; create it, or unset the variable"
        else:
            return None, {}
    except OSError as error:
        problem = (
            f"{file}: it can't be read: {error.strerror}; make it a file that this user may read, or name another one"
            " with --config"
        )
    except UnicodeDecodeError as error:
        problem = f"{file}: it can't be read: {error}; save it as UTF-8"
    raise SettingsError([problem])


def _parse_toml(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number of more than 4300 digits
        reason = str(error).replace(r"Illegal character '\n'", "a text lacks its quote at the end of the line")
        if twice := re.match(r"Cannot declare \((.+?),?\) twice", reason):
            table = ".".join(re.findall(r"'(.*?)'", twice[1]))
            reason = f"the table [{table}] is there twice: put its keys under one header{reason[twice.end() :]}"
        raise SettingsError([f"{file}: it is not valid TOML: {reason}"]) from None
    except RecursionError:
        raise SettingsError([f"{file}: it is not valid TOML: it nests too deeply"]) from None


def _normalize_tables(tables: Any, file: Path | None) -> dict[str, dict[str, Any]]:
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError([f"{file}: plugins: it must hold one table a plugin, such as [plugins.catalog-v1]"])
    by_plugin: dict[str, str] = {}
    for name in tables:
        other = by_plugin.setdefault(name.replace("_", "-"), name)
        if other != name:
            raise SettingsError([f"{file}: plugins.{other} and plugins.{name} are the same plugin: keep one"])
    return {plugin: tables[name] for plugin, name in by_plugin.items()}


def _leaves(model: BaseModel, *above: str) -> Iterator[tuple[tuple[str, ...], Any, FieldInfo]]:
    """Yield the path, the value and the field of each setting that is not a table."""
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, *above, name)
        else:
            yield (*above, name), value, info


def _default(info: FieldInfo) -> Any:
    """Return a field's default, or None if it has none or it depends on other fields."""
    if info.is_required() or (info.default_factory and info.default_factory_takes_validated_data):
        return None
    return info.get_default(call_default_factory=True)
