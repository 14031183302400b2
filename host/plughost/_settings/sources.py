"""Settings: `plughost.toml` and the environment, validated; each plugin's own table by its own model."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings import SettingsError as PydanticSettingsError

from plughost._api.values import Value
from plughost._settings.models import CompressionSettings, CORSSettings, RateLimitSettings, SecurityHeadersSettings

if TYPE_CHECKING:
    from plughost.stores._config import StoresConfig

ENV_PREFIX: Final = "PLUGHOST_"
DEFAULT_FILE: Final = "plughost.toml"
# Variables of the prefix that are no settings: where the settings are, and where the test suites find services.
NO_SETTINGS: Final = ("PLUGHOST_CONFIG", "PLUGHOST_TEST_")

# What a running host keeps: where it listens, what it shows there, and where its data is.
FIXED: Final = ("address", "data_dir", "log", "requests", "sites", "tls", "trusted_proxies")

Scheme = Literal["http", "https"]
EngineName = Literal["waitress", "granian"]
HostName = Annotated[str, Field(pattern=r"^(\*|(\*\.)?[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])$")]
Port = Annotated[int, Field(ge=0, le=65535)]
ModelT = TypeVar("ModelT", bound=BaseModel)

_key_part = re.compile(r"[A-Za-z0-9_.-]+").fullmatch
_STRICT = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class SettingsError(Exception):
    """Settings that can't be used.

    Attributes:
        problems: One line each: where, what, and what to do.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        """Keep the problems."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class SiteSettings(BaseModel):
    """A site and its listeners."""

    model_config = _STRICT

    address: str | None = Field(None, description="Address to bind; the host's `address` by default")
    listeners: tuple[Scheme, ...] = Field(("http", "https"), description="Which listeners to open", min_length=1)
    http_port: Port = Field(description="TCP port of the HTTP listener; 0 lets the system choose")
    https_port: Port = Field(description="TCP port of the HTTPS listener; 0 lets the system choose")
    http_engine: EngineName = Field("waitress", description="Engine of the HTTP listener")
    threads: int = Field(4, ge=1, le=256, description="Slow requests at once; all sites share them")
    connection_limit: int = Field(4096, ge=1, description="Open connections of a listener at most")
    idle_timeout: int = Field(60, ge=1, description="Seconds after which an idle connection is closed")
    allowed_hosts: tuple[HostName, ...] = Field(
        (), description="Names and addresses it is reached by, *.example.org for subdomains; any other Host is 400"
    )
    client_ca: Path | None = Field(None, description="PEM file of authorities: HTTPS clients need a certificate of one")
    cors: CORSSettings = CORSSettings()
    compression: CompressionSettings = CompressionSettings()
    security_headers: SecurityHeadersSettings = SecurityHeadersSettings()


class MainSite(SiteSettings):
    """The site `main`."""

    http_port: Port = Field(8080, description="TCP port of the HTTP listener; 0 lets the system choose")
    https_port: Port = Field(8443, description="TCP port of the HTTPS listener; 0 lets the system choose")


class LibrarySite(SiteSettings):
    """The site `library`."""

    http_port: Port = Field(9998, description="TCP port of the HTTP listener; 0 lets the system choose")
    https_port: Port = Field(4443, description="TCP port of the HTTPS listener; 0 lets the system choose")


class AdminSite(SiteSettings):
    """The site `admin`, for operators: it opens no port until a plugin is put there by its setting `site`."""

    http_port: Port = Field(9090, description="TCP port of the HTTP listener; 0 lets the system choose")
    https_port: Port = Field(9493, description="TCP port of the HTTPS listener; 0 lets the system choose")
    required_role: str | None = Field(None, description="Role that a bearer token needs for anything on this site")


class Sites(BaseModel):
    """The sites of a host."""

    model_config = _STRICT

    main: MainSite = MainSite()
    library: LibrarySite = LibrarySite()
    admin: AdminSite = AdminSite()


class TLSSettings(BaseModel):
    """The certificate that the HTTPS listeners show."""

    model_config = _STRICT

    certificate: Path | None = Field(None, description="PEM file with the certificate and its chain")
    key: Path | None = Field(None, description="PEM file with the private key")
    pkcs12: Path | None = Field(None, description="PKCS#12 key store, instead of certificate and key")
    password: SecretStr | None = Field(None, description="What the key or the key store is encrypted with")
    self_signed: bool = Field(False, description="Make a self-signed certificate outside of --dev too")
    names: tuple[str, ...] = Field((), description="Further names of the self-signed certificate")
    policy: Literal["intermediate", "modern"] = Field(
        "intermediate", description="intermediate: TLS 1.2 and 1.3; modern: 1.3 alone"
    )


class StoreTuning(BaseModel):
    """How long to wait for a store, and how many connections it may have."""

    model_config = _STRICT

    patience: float = Field(
        5.0, gt=0, description="Seconds to wait for a connection, for locks, and for a lost database"
    )
    connect_timeout: int = Field(3, ge=2, description="Seconds to wait until PostgreSQL lets a connection in")
    statement_timeout: float = Field(30.0, gt=0, description="Seconds that PostgreSQL may work on one statement")
    pause: float = Field(1.0, ge=0, description="Seconds between attempts to reach a database that is away for longer")
    pool_size: int = Field(5, ge=1, description="Connections to a store at most; on SQLite, of those that read")
    pool_idle: float = Field(
        10.0, ge=0, description="Seconds after which an idle connection is closed, but for the last"
    )


class StoreSettings(StoreTuning):
    """Where plugins' data is kept."""

    url: SecretStr | None = Field(None, description="postgresql:// URL of every store; SQLite files by default")
    urls: dict[str, SecretStr] = Field({}, description="The same for single stores, by store name")
    tuning: dict[str, StoreTuning] = Field({}, description="patience to pool_idle for single stores, by store name")


class RequestSettings(BaseModel):
    """What requests may take of the host."""

    model_config = _STRICT

    plugin_threads: int | None = Field(
        None, ge=1, description="Slow requests of one plugin at once; by default a quarter of all, at least two"
    )
    plugin_queue: int = Field(1000, ge=0, description="Requests of one plugin that may wait while it has its share")
    queue_timeout: float = Field(10.0, gt=0, description="Seconds after which one that waits so is refused")
    body_timeout: int = Field(300, ge=1, description="Seconds that a request body may take in all")


class LogSettings(BaseModel):
    """What is logged, and how."""

    model_config = _STRICT

    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else JSON lines")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least severe level logged")
    access: bool = Field(True, description="Log a line for each request")
    audit: Path | None = Field(None, description="File of the audit trail; by default it is in the log")


class HostSettings(BaseSettings):
    """The host's own settings: all of `plughost.toml` but the tables of plugins."""

    model_config = _STRICT  # type: ignore[assignment] # the keys are those that BaseModel has too

    address: str = Field("127.0.0.1", description="Address that every listener binds")
    data_dir: Path = Field(Path("plughost-data"), description="Folder of all that is kept; relative to the settings")
    disabled: tuple[str, ...] = Field((), description="Plugins to skip before their code is imported")
    required: tuple[str, ...] = Field((), description="Plugins without which the host refuses to start")
    strict: bool = Field(False, description="Refuse to start when any plugin fails")
    trusted: tuple[str, ...] = Field(
        ("dev-console",),
        description="Plugins that may reload the host, enable and disable plugins, and read every plugin's store",
    )
    grace_time: float = Field(30.0, ge=0, description="Seconds that requests in flight have when the host stops")
    shutdown_delay: float = Field(
        0.0, ge=0, description="Seconds that all is served with readiness down before a stop closes the ports"
    )
    hook_timeout: float = Field(30.0, gt=0, description="Seconds that a plugin's import and each of its hooks may take")
    body_limit: ByteSize = Field(ByteSize(1024 * 1024), gt=0, description="Largest request body, in bytes")
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = Field(
        (), description="Proxies whose X-Forwarded-* headers are believed"
    )
    sites: Sites = Sites()
    tls: TLSSettings = TLSSettings()
    stores: StoreSettings = StoreSettings()
    rate_limits: RateLimitSettings = RateLimitSettings()
    requests: RequestSettings = RequestSettings()
    log: LogSettings = LogSettings()


class MountSettings(BaseModel):
    """What the host reads of a plugin's table; the rest is the plugin's own."""

    model_config = _STRICT

    site: Literal["main", "library", "admin"] | None = Field(
        None, description="Site to mount it on instead of its own choice"
    )
    body_limit: ByteSize | None = Field(None, gt=0, description="Largest request body it accepts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a host, read once.

    Attributes:
        file: The TOML file; None where there is none.
        base: The folder that relative paths start from.
        host: The host's own settings.
        tables: The plugins' tables as the file has them, by plugin name.
        environment: The environment that overrides them.
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
            The settings, in which what can't change while a host runs is as it was; and a line for each such key
            that was changed.

        Raises:
            SettingsError: The settings can't be used any more.
        """
        new = read_settings(self.file, self.environment, self.base)
        changed = [key for key in FIXED if getattr(new.host, key) != getattr(self.host, key)]
        kept = new.host.model_copy(update={key: getattr(self.host, key) for key in changed})
        return replace(new, host=kept), tuple(
            f"the setting {key} changed, and is read at start only" for key in changed
        )

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
        """Validate a plugin's table with the plugin's model; unknown keys are refused whatever the model says.

        Raises:
            SettingsError: A key is unknown or a value is invalid; every problem is named.
        """
        reserved = sorted(set(MountSettings.model_fields) & set(model.model_fields))
        if reserved:
            raise SettingsError([f"the settings model {model.__name__} has a field {reserved[0]}, which is the host's"])
        table = self.tables.get(plugin, {})
        own = {key: value for key, value in table.items() if key not in MountSettings.model_fields}
        return self._validated(model, plugin, own)

    def _validated(self, model: type[ModelT], plugin: str, table: Mapping[str, Any]) -> ModelT:
        place = f"plugins.{plugin}"
        prefix = plugin_prefix(plugin)
        unknown = list(_unknown_keys(self._name, place, table, model))
        values = _merged(table, _environment(model, prefix, self.environment))
        try:
            result = model.model_validate({key: value for key, value in values.items() if key in model.model_fields})
        except ValidationError as error:
            told = _problems(error, place, model, self._name, _Variables(prefix, self.environment))
            raise SettingsError(dict.fromkeys([*unknown, *told])) from None
        if unknown:
            raise SettingsError(unknown)
        return result

    @property
    def _name(self) -> str:
        return self.file.name if self.file is not None else "settings"

    def unknown_plugins(self, installed: Iterable[str]) -> list[str]:
        """Return a warning for each table of a plugin that is not installed; plugins come and go, so it is no error."""
        names = sorted(installed)
        return [
            f"{self._name}: plugins.{name}: no such plugin is installed{_did_you_mean(name, names)}"
            for name in sorted(self.tables)
            if name not in names
        ]

    def unknown_variables(self, plugins: Mapping[str, type[BaseModel] | None]) -> list[str]:
        """Return a warning for each `PLUGHOST_` variable that sets nothing.

        It is no error: orchestrators set variables of that form for a service that is called plughost.
        """
        known = set(_variables(HostSettings, ENV_PREFIX))
        for name, model in plugins.items():
            known.update(_variables(MountSettings, plugin_prefix(name)))
            known.update(_variables(model, plugin_prefix(name)) if model is not None else ())
        return [
            f"environment: {name} is no setting{_did_you_mean(name, sorted(known))}"
            for name in sorted(self.environment)
            if name.startswith(ENV_PREFIX)
            and not name.startswith(NO_SETTINGS)
            and not any(name == one or name.startswith(f"{one}__") for one in known)
        ]

    def values(self, plugins: Mapping[str, BaseModel]) -> Iterator[Value]:
        """Yield every setting in force, secrets masked.

        Args:
            plugins: The validated settings of the plugins, by name.
        """
        yield from self._all_values(self.host, "", ENV_PREFIX, self.raw)
        for name, model in plugins.items():
            table = self.tables.get(name, {})
            for each in (self.mount(name), model):
                yield from self._all_values(each, f"plugins.{name}.", plugin_prefix(name), table)

    def _all_values(self, model: BaseModel, key: str, prefix: str, table: Mapping[str, Any]) -> Iterator[Value]:
        given = _environment(type(model), prefix, self.environment)
        yield from self._values(model, key, table, given, _Variables(prefix, self.environment))

    def _values(
        self,
        model: BaseModel,
        key: str,
        table: Mapping[str, Any],
        given: Mapping[str, Any],
        variables: _Variables,
        *path: str,
    ) -> Iterator[Value]:
        defaults = _defaults(type(model))
        for name in type(model).model_fields:
            value = getattr(model, name)
            if isinstance(value, BaseModel):
                inner = table.get(name) or {}, given.get(name) or {}
                yield from self._values(value, f"{key}{name}.", *inner, variables, *path, name)
                continue
            source = "default"
            if name in given:
                source = variables.setting((*path, name)) or "environment"
            elif name in table:
                source = self._name
            yield Value(f"{key}{name}", _shown(value), _shown(defaults.get(name)), source)


def read_settings(
    file: Path | None = None, environment: Mapping[str, str] | None = None, base: Path | None = None
) -> Settings:
    """Read the settings file and the environment.

    Args:
        file: The TOML file; by default what `PLUGHOST_CONFIG` names, else `plughost.toml` if the folder has one.
        environment: Variables `PLUGHOST_<KEY>` that override the file, nested keys joined by two underscores;
            the process's by default.
        base: The folder that relative paths start from; by default the file's, else the current one.

    Raises:
        SettingsError: The file can't be read, or a setting of the host's own is unknown or invalid.
    """
    environment = dict(os.environ) if environment is None else environment
    if file is None and environment.get("PLUGHOST_CONFIG"):
        file = Path(environment["PLUGHOST_CONFIG"])
    elif file is None and Path(DEFAULT_FILE).is_file():
        file = Path(DEFAULT_FILE)
    raw = _read(file) if file is not None else {}
    tables = _tables(raw.pop("plugins", {}), file)
    place = file.name if file is not None else "settings"
    values = _merged(raw, _environment(HostSettings, ENV_PREFIX, environment))
    try:
        host = HostSettings.model_validate(values)
    except ValidationError as error:
        variables = _Variables(ENV_PREFIX, environment)
        raise SettingsError(_problems(error, "", HostSettings, place, variables)) from None
    if base is None:
        base = file.absolute().parent if file is not None else Path.cwd()
    return Settings(file=file, base=base, host=host, tables=tables, environment=environment, raw=raw)


def plugin_prefix(plugin: str) -> str:
    """Return what the environment variables of a plugin's settings begin with."""
    return f"{ENV_PREFIX}PLUGINS__{plugin.replace('-', '_').upper()}__"


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingsError([f"{file}: there is no such file; create it, or leave --config out"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"{file}: it can't be read: {error}"]) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([f"{file}: it is not valid TOML: {error}"]) from None
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


@dataclass(frozen=True, slots=True)
class _Variables:
    """The environment variables of one prefix."""

    prefix: str
    environment: Mapping[str, str]

    def setting(self, path: Sequence[str]) -> str | None:
        """Return the variable that sets a key: its own, one of a key in it, or one of a table around it."""
        own = self._name(path)
        below = (name for name in sorted(self.environment) if name.startswith(f"{own}__"))
        around = (self._name(path[:length]) for length in range(len(path) - 1, 0, -1))
        return next((name for name in (own, *below, *around) if self.environment.get(name)), None)

    def malformed(self, model: type[BaseModel]) -> Iterator[str]:
        """Yield the variables that can't be decoded."""
        for name, value in sorted(self.environment.items()):
            if name.startswith(self.prefix):
                try:
                    _decoded(model, self.prefix, {name: value})
                except PydanticSettingsError:
                    yield name

    def _name(self, path: Sequence[str]) -> str:
        return self.prefix + "__".join(path).upper()


def _environment(model: type[BaseModel], prefix: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the environment sets of a model, nested and decoded.

    Raises:
        SettingsError: A list or a table is no JSON.
    """
    try:
        return _decoded(model, prefix, environment)
    except PydanticSettingsError:
        names = _Variables(prefix, environment).malformed(model)
        example = 'write a list as ["a", "b"], a table as {"key": "value"}'
        raise SettingsError([f"environment: {name}: it is not valid JSON; {example}" for name in names]) from None


def _decoded(model: type[BaseModel], prefix: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Decode as pydantic-settings does it."""
    source = EnvSettingsSource(
        BaseSettings, env_prefix=prefix, env_nested_delimiter="__", case_sensitive=False, env_ignore_empty=True
    )
    source.settings_cls = model  # type: ignore[assignment] # any model has the fields that it reads
    source.env_vars = {name.lower(): value for name, value in environment.items() if name.startswith(ENV_PREFIX)}
    return source()


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return two nested mappings as one; where both set a key, high wins."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _problems(
    error: ValidationError, place: str, model: type[BaseModel], file: str, variables: _Variables
) -> list[str]:
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = [str(part) for part in problem["loc"] if _key_part(str(part))]  # of a union, pydantic adds each member
        key = ".".join(part for part in (place, *where) if part)
        variable = variables.setting(where)
        told = f"environment: {variable}" if variable is not None else f"{file}: {key}"
        if problem["type"] == "extra_forbidden":
            known = list(_model_at(model, where[:-1]).model_fields)
            lines.append(f"{told}: unknown key{_did_you_mean(where[-1], known)}")
        else:
            lines.append(f"{told}: {problem['msg'].removeprefix('Value error, ')}")
    return lines


def _unknown_keys(file: str, place: str, table: Mapping[str, Any], model: type[BaseModel]) -> Iterator[str]:
    for key, value in table.items():
        if key not in model.model_fields:
            yield _unknown(file, f"{place}.{key}", key, model)
        elif isinstance(value, dict) and (inner := _model_at(model, [key])) is not model:
            yield from _unknown_keys(file, f"{place}.{key}", value, inner)


def _unknown(file: str, key: str, name: str, model: type[BaseModel]) -> str:
    return f"{file}: {key}: unknown key{_did_you_mean(name, list(model.model_fields))}"


def _did_you_mean(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known) or 'none'}"


def _model_at(model: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return model


def _variables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield f"{prefix}{name}".upper()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _variables(info.annotation, f"{prefix}{name}__")


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return {
        name: info.get_default(call_default_factory=True)
        for name, info in model.model_fields.items()
        if not info.is_required() and not (info.default_factory and info.default_factory_takes_validated_data)
    }


def _shown(value: Any) -> Any:
    """Return a value as it may be shown: secrets masked, paths and networks as text, models as mappings."""
    if isinstance(value, SecretStr):
        return str(value)
    if isinstance(value, BaseModel):
        return {name: _shown(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_shown(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _shown(each) for key, each in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
