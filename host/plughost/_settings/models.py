"""The tables of the host's settings. They import nothing of the host: every command reads them, and must start fast."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)


def _address(value: str) -> str:
    """Validate an IP address or a host name. A name whose last label is all digits must be a valid address."""
    if _HOST_NAME.fullmatch(value) is None or value.rpartition(".")[2].isdigit():
        try:
            ip_address(value.partition("%")[0])  # a link-local address may name its interface after the %
        except ValueError:
            raise ValueError(f"{value!r} is neither an IP address nor a host name of this machine") from None
    return value


def _host_name(value: str) -> str:
    if _HOST_HEADER.fullmatch(value) is None:
        raise ValueError(f'{value!r} is neither a name nor an address, such as "example.org", "*.example.org", "[::1]"')
    return value


def _header_value(value: str) -> str:
    if _HEADER_VALUE.fullmatch(value) is None:
        raise ValueError(
            'must be one line of ASCII characters: between """, a \\ at the end of a line joins it with the next'
        )
    return value


def _header_name(value: str) -> str:
    if _HEADER_NAME.fullmatch(value) is None:
        raise ValueError(f'{value!r} is no name of a header, such as "X-Total-Count"')
    return value


def _check_text(text: str, types: AbstractSet[object]) -> None:
    """Refuse a text that no setting of these types can have."""
    if "\0" in text:
        raise ValueError("must not contain the character U+0000")
    if not text and Path in types:
        raise ValueError('must not be empty: leave it out, or write "." for the folder of the settings')
    # pydantic reads the beginning of a text alone: it takes "10,5 MB" for 10 bytes.
    if ByteSize in types and _SIZE.fullmatch(text) is None:
        raise ValueError('must be a size in bytes, or one with a unit, such as "10 MB"')


Scheme = Literal["http", "https"]
EngineName = Literal["waitress", "granian"]
HTTPPort = Annotated[int, Field(ge=0, le=65535, description="TCP port of the HTTP listener; 0 lets the system choose")]
HTTPSPort = Annotated[
    int, Field(ge=0, le=65535, description="TCP port of the HTTPS listener; 0 lets the system choose")
]
_MIN_TIMEOUT: Final = 0.001  # PostgreSQL counts milliseconds, and takes 0 for no limit
_MAX_SECONDS: Final = 1_000_000  # 11 days: clocks, locks and PostgreSQL (32-bit milliseconds) accept that
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(str)]  # ipaddress takes the number 1 for 0.0.0.1
Seconds = Annotated[float, Field(le=_MAX_SECONDS)]
WholeSeconds = Annotated[int, Field(le=_MAX_SECONDS)]
Address = Annotated[str, AfterValidator(_address)]
HostName = Annotated[str, AfterValidator(_host_name)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[str, AfterValidator(_header_value)]
Encoding = Literal["zstd", "gzip"]

MEMORY: Final = "memory"
_REDIS: Final = ("redis://", "rediss://", "redis+unix://")
_HOST_NAME: Final = re.compile(r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
_SIZE: Final = re.compile(r"\s*[\d_]*\.?\d+\s*[A-Za-z]*\s*")
_HOST_HEADER: Final = re.compile(r"\*|(\*\.)?[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_ORIGIN: Final = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")


class Table(BaseModel):
    """A table of the settings: it refuses unknown keys, false types and unfit texts, and validates defaults."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check_type(cls, value: object, info: ValidationInfo) -> object:
        annotation = cls.model_fields[info.field_name or ""].annotation
        types = {annotation, *get_args(annotation)}
        if isinstance(value, bool) and {int, float, ByteSize} & types:
            raise ValueError(f"must be a number, not {str(value).lower()}")
        if isinstance(value, str):
            _check_text(value, types)
        return value


class CompressionSettings(Table):
    """Which encodings responses may be sent in: none, by default."""

    encodings: tuple[Encoding, ...] = Field((), description="zstd and gzip, the one to prefer first; none to be off")
    minimum_size: ByteSize = Field(ByteSize(1024), ge=0, description="Bodies shorter than this are sent as they are")


class CORSSettings(Table):
    """Which web pages of other origins may use the site: none, by default."""

    origins: tuple[str, ...] = Field((), description="Origins such as https://app.example.org, or * alone for all")
    credentials: bool = Field(False, description="Let pages of these origins send cookies and HTTP authentication")
    expose: tuple[HeaderName, ...] = Field((), description="Response headers that pages may read beside the host's own")
    max_age: int = Field(600, ge=0, le=86400, description="Seconds that a browser may remember a preflight")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.origins == ("*",):
            if self.credentials:
                raise ValueError(
                    'credentials = true needs origins by name: with origins = ["*"] any web page could use them'
                )
            return self
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is no origin: write scheme, host in lower case and, unless it is the scheme's own,"
                    ' port, such as "https://app.example.org", or "*" alone'
                )
        return self


class SecurityHeadersSettings(Table):
    """Headers for browsers. A header that a plugin sets itself is left as it is. An empty text sends none."""

    enabled: bool = Field(False, description="Send them; X-Content-Type-Options is always sent")
    hsts: int = Field(0, ge=0, description="Seconds that browsers shall use HTTPS only, sent over HTTPS; 0 for none")
    frame_options: Literal["DENY", "SAMEORIGIN", ""] = Field("DENY", description="X-Frame-Options")
    content_security_policy: HeaderValue = Field(
        "default-src 'none'; frame-ancestors 'none'", description="Content-Security-Policy"
    )
    referrer_policy: HeaderValue = Field("no-referrer", description="Referrer-Policy")
    permissions_policy: HeaderValue = Field("", description="Permissions-Policy")
    cross_origin_opener_policy: HeaderValue = Field("same-origin", description="Cross-Origin-Opener-Policy")
    cross_origin_resource_policy: HeaderValue = Field("", description="Cross-Origin-Resource-Policy")


class RateLimitSettings(Table):
    """Where the rate limits of all plugins are counted."""

    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True)

    storage: SecretStr = Field(
        SecretStr(MEMORY),
        description="memory, or a redis:// URL that several hosts share to count together",
        examples=["redis://redis.example.org:6379/0"],
    )
    on_storage_failure: Literal["allow", "refuse"] = Field(
        "allow", description="Without Redis, let requests through uncounted, or answer them 503"
    )
    timeout: float = Field(0.5, gt=0, le=30, description="Seconds to wait for Redis before it counts as failed")

    @property
    def shared(self) -> bool:
        """Whether several hosts count together, in Redis."""
        return self.storage.get_secret_value() != MEMORY

    @field_validator("storage")
    @classmethod
    def _check(cls, storage: SecretStr) -> SecretStr:
        url = storage.get_secret_value()
        if url != MEMORY and not url.startswith(_REDIS):
            raise ValueError(f"must be {MEMORY} or a URL that starts with {', '.join(_REDIS)}")
        try:
            _ = (parts := urlsplit(url)).port
        except ValueError:  # its message may contain a part of the password
            raise ValueError("is malformed: write [ and ] as %5B and %5D, and the port as a number") from None
        if parts.scheme in {"redis", "rediss"} and re.fullmatch(r"/?[0-9]*", parts.path) is None:
            raise ValueError("must end in the database's number, such as /0: the driver takes 0 for a name")
        return storage


class SiteSettings(Table):
    """A site and its listeners."""

    address: Address | None = Field(
        None, description="Address to bind; the host's `address` by default", examples=["192.0.2.1"]
    )
    listeners: tuple[Scheme, ...] = Field(("http", "https"), description="Which listeners to open", min_length=1)
    http_port: HTTPPort
    https_port: HTTPSPort
    http_engine: EngineName = Field("waitress", description="Engine of the HTTP listener")
    threads: int = Field(4, ge=1, le=256, description="Slow requests at once; all sites share them")
    connection_limit: int = Field(4096, ge=1, description="Open connections of a listener at most")
    idle_timeout: WholeSeconds = Field(60, ge=1, description="Seconds after which an idle connection is closed")
    allowed_hosts: tuple[HostName, ...] = Field(
        (), description="Names and addresses it is reached by, *.example.org for subdomains; any other Host is 400"
    )
    client_ca: Path | None = Field(
        None, description="PEM file of authorities: HTTPS clients need a certificate of one", examples=["clients.pem"]
    )
    cors: CORSSettings = CORSSettings()
    compression: CompressionSettings = CompressionSettings()
    security_headers: SecurityHeadersSettings = SecurityHeadersSettings()


class MainSite(SiteSettings):
    """The site `main`."""

    http_port: HTTPPort = 8080
    https_port: HTTPSPort = 8443


class LibrarySite(SiteSettings):
    """The site `library`."""

    http_port: HTTPPort = 9998
    https_port: HTTPSPort = 4443


class AdminSite(SiteSettings):
    """The site `admin`, for operators: it opens no port until a plugin is put there by its setting `site`."""

    http_port: HTTPPort = 9090
    https_port: HTTPSPort = 9493
    required_role: str | None = Field(
        None, description="Role that a bearer token needs for anything on this site", examples=["admin"]
    )


class Sites(Table):
    """The sites of a host."""

    main: MainSite = MainSite()
    library: LibrarySite = LibrarySite()
    admin: AdminSite = AdminSite()


class TLSSettings(Table):
    """The certificate that the HTTPS listeners show."""

    certificate: Path | None = Field(
        None, description="PEM file with the certificate and its chain", examples=["fullchain.pem"]
    )
    key: Path | None = Field(None, description="PEM file with the private key", examples=["privkey.pem"])
    pkcs12: Path | None = Field(
        None, description="PKCS#12 key store, instead of certificate and key", examples=["host.p12"]
    )
    password: SecretStr | None = Field(
        None, description="What the key or the key store is encrypted with", examples=["a secret"]
    )
    self_signed: bool = Field(False, description="Make a self-signed certificate outside of --dev too")
    names: tuple[str, ...] = Field((), description="Further names of the self-signed certificate")
    policy: Literal["intermediate", "modern"] = Field(
        "intermediate", description="intermediate: TLS 1.2 and 1.3; modern: 1.3 alone"
    )


class StoreTuning(Table):
    """How long to wait for a store, how many connections it may have, and whether it is written."""

    patience: Seconds = Field(
        5.0, ge=_MIN_TIMEOUT, description="Seconds to wait for a connection, for locks, and for a lost database"
    )
    connect_timeout: WholeSeconds = Field(3, ge=2, description="Seconds to wait until PostgreSQL lets a connection in")
    statement_timeout: Seconds = Field(
        30.0, ge=_MIN_TIMEOUT, description="Seconds that PostgreSQL may work on one statement"
    )
    pause: Seconds = Field(
        1.0, ge=0, description="Seconds between attempts to reach a database that is away for longer"
    )
    pool_size: int = Field(10, ge=1, description="Connections to a store at most; on SQLite, of those that read")
    pool_idle: Seconds = Field(
        10.0, ge=0, description="Seconds after which an idle connection is closed, but for the last"
    )
    read_only: bool = Field(False, description="Only read, as from a standby: nothing is migrated, and writes are 503")


class StoreSettings(StoreTuning):
    """Where plugins' data is kept."""

    url: SecretStr | None = Field(
        None,
        description="postgresql:// URL of every store; SQLite files by default",
        examples=["postgresql://plughost@db.example.org/plughost"],
    )
    urls: dict[str, SecretStr] = Field({}, description="The same for single stores, by store name")
    tuning: dict[str, StoreTuning] = Field({}, description="patience to read_only for single stores, by store name")


class RequestSettings(Table):
    """What requests may take of the host."""

    plugin_threads: int | None = Field(
        None,
        ge=1,
        description="Slow requests of one plugin at once; by default a quarter of all, at least two; with a store 10",
        examples=[4],
    )
    plugin_queue: int = Field(1000, ge=0, description="Requests of one plugin that may wait while it has its share")
    queue_timeout: Seconds = Field(10.0, gt=0, description="Seconds after which one that waits so is refused")
    one_processor: bool = Field(
        True, description="Whether the threads that answer requests share one processor, which is quicker (Linux)"
    )
    body_timeout: WholeSeconds = Field(300, ge=1, description="Seconds that a request body may take in all")
    body_memory: int = Field(
        64 * 1024 * 1024,
        ge=1024 * 1024,
        description="Bytes of memory that a listener's unfinished bodies may take in all",
    )


class LogSettings(Table):
    """What is logged, and how."""

    format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, else JSON lines")
    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least severe level logged")
    access: bool = Field(True, description="Log a line for each request")
    audit: Path | None = Field(
        None, description="File of the audit trail; by default it is in the log", examples=["audit.jsonl"]
    )


class HostSettings(Table):
    """The host's own settings: all of `plughost.toml` except the tables of plugins."""

    address: Address = Field(
        "127.0.0.1", description="Address that every listener binds: 0.0.0.0 all of IPv4, :: all of IPv4 and IPv6"
    )
    data_dir: Path = Field(Path("plughost-data"), description="Folder of all that is kept; relative to the settings")
    disabled: tuple[str, ...] = Field((), description="Plugins to skip before their code is imported")
    required: tuple[str, ...] = Field((), description="Plugins without which the host refuses to start")
    strict: bool = Field(False, description="Refuse to start when any plugin fails")
    allowed: tuple[str, ...] | None = Field(
        None,
        description="The distributions that may bring plugins, such as `plughost-messages >= 1, < 2`; "
        "others are neither installed nor imported. By default all may",
        examples=[["plughost-messages >= 1, < 2"]],
    )
    plugins_dir: Path | None = Field(
        None,
        description="Folder in which each Python file is a plugin, with --dev only, for development",
        examples=["plugins"],
    )
    trusted: tuple[str, ...] = Field(
        ("dev-console",),
        description="Plugins that may reload the host, switch and purge plugins, change settings, and read every store",
    )
    grace_time: Seconds = Field(30.0, ge=0, description="Seconds that requests in flight have when the host stops")
    shutdown_delay: Seconds = Field(
        0.0, ge=0, description="Seconds that all is served with readiness down before a stop closes the ports"
    )
    hook_timeout: Seconds = Field(
        30.0,
        gt=0,
        description="Seconds that a plugin's import, each of its hooks and each call of its observers may take",
    )
    body_limit: ByteSize = Field(ByteSize(1024 * 1024), gt=0, description="Largest request body, in bytes")
    trusted_proxies: tuple[Network, ...] = Field((), description="Proxies whose X-Forwarded-* headers are believed")
    sites: Sites = Sites()
    tls: TLSSettings = TLSSettings()
    stores: StoreSettings = StoreSettings()
    rate_limits: RateLimitSettings = RateLimitSettings()
    requests: RequestSettings = RequestSettings()
    log: LogSettings = LogSettings()

    @field_validator("allowed")
    @classmethod
    def _check_allowed(cls, allowed: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if allowed is not None:
            from plughost._plugins.environment import parse_allowed  # noqa: PLC0415 - few settings have it

            for each in allowed:
                parse_allowed(each)
        return allowed


class MountSettings(Table):
    """The host's part of a plugin's table. The rest belongs to the plugin."""

    site: Literal["main", "library", "admin"] | None = Field(
        None, description="Site to mount it on instead of its own choice", examples=["admin"]
    )
    body_limit: ByteSize | None = Field(None, gt=0, description="Largest request body it accepts", examples=["2 MiB"])
