"""Settings: every mistake is reported with its place and the most similar key; secrets are never shown."""

from __future__ import annotations

import json
import os
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator

from plughost._settings.errors import SettingsError
from plughost._settings.models import HostSettings, MountSettings
from plughost._settings.sources import RESTART_ONLY, Settings, read_settings

SECRET = "hunter2-secret"


class Inner(BaseModel):
    """A nested table."""

    password: SecretStr = SecretStr("")
    depth: int = 1


class Model(BaseModel):
    """A plugin's settings."""

    limit: int = Field(5, ge=1)
    names: tuple[str, ...] = ()
    token: SecretStr = SecretStr("")
    tokens: dict[str, SecretStr] = {}
    inner: Inner = Inner()
    pin: SecretStr = SecretStr("1234")

    @field_validator("pin")
    @classmethod
    def _digits(cls, pin: SecretStr) -> SecretStr:
        if not pin.get_secret_value().isdigit():
            raise ValueError("a pin is made of digits")
        return pin


def read(text: str, folder: Path, **environment: str) -> Settings:
    """Read settings from a file with this text."""
    file = folder / "plughost.toml"
    file.write_text(text)
    return read_settings(file, environment)


def problems(text: str, folder: Path, **environment: str) -> str:
    """Return what is wrong with the settings, including those of the plugin `shop`."""

    def read_all() -> None:
        settings = read(text, folder, **environment)
        settings.plugin_settings("shop", MountSettings)
        settings.plugin_settings("shop", Model)

    with pytest.raises(SettingsError) as raised:
        read_all()
    return "\n".join(raised.value.problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adress = '::1'", "plughost.toml: adress: unknown key; did you mean address?"),
        ("[sites.main]\nhttp_prt = 1", "plughost.toml: sites.main.http_prt: unknown key; did you mean http_port?"),
        ("[sites.maim]", "plughost.toml: sites.maim: unknown key; did you mean main?"),
        ("[log]\nself_signed = true", "plughost.toml: log.self_signed: unknown key; did you mean tls.self_signed?"),
        ("[sites.moon]", "plughost.toml: sites.moon: unknown key; known: main, library, admin"),
        ("banana = 1", "plughost.toml: banana: unknown key; `plughost init FILE` writes all"),
        ('"é" = 1', "plughost.toml: 'é': unknown key; `plughost init FILE` writes all"),
        ("'' = 1", "plughost.toml: '': unknown key; `plughost init FILE` writes all"),
        ("[sites]\n'the moon' = 1", "plughost.toml: sites.'the moon': unknown key; known: main, library, admin"),
        ("[sites.main]\nhttp_port = 70000", "plughost.toml: sites.main.http_port: "),
        ("[sites.main]\nhttp_engine = 'nginx'", "'waitress' or 'granian'"),
        ("[sites.main]\nlisteners = []", "plughost.toml: sites.main.listeners: must have at least 1 item"),
        ("[sites.main]\nallowed_hosts = ['a b']", "sites.main.allowed_hosts.0: 'a b' is neither a name nor an address"),
        ("[sites.main]\nhttp_port = 1e300", "plughost.toml: sites.main.http_port: must be a whole number"),
        ("trusted_proxies = ['10.0.0.1/8']", "plughost.toml: trusted_proxies.0: "),
        ("trusted_proxies = [1]", "trusted_proxies.0: must be an address or a network without host bits"),
        ("rate_limits.storage = 'redis://h/abc'", "rate_limits.storage: must end in the database's number, such as /0"),
        (
            "trusted_proxies = ['proxy']",
            "trusted_proxies.0: must be an address or a network without host bits, such as",
        ),
        ("body_limit = '1 parsec'", "plughost.toml: body_limit: must be a size in bytes, or one with a unit, such as"),
        ("body_limit = '10,5 MB'", "plughost.toml: body_limit: must be a size in bytes, or one with a unit, such as"),
        ("address = 'example..org'", "plughost.toml: address: 'example..org' is neither an IP address nor a host name"),
        ("[plugins.shop]\nbody_limit = '1e-9'", "plugins.shop.body_limit: must be a size in bytes, or one with a unit"),
        ("[stores]\nstatement_timeout = 0.0009", "stores.statement_timeout: must be greater than or equal to 0.001"),
        ("[stores]\npatience = 0.0009", "stores.patience: must be greater than or equal to 0.001"),
        ('data_dir = "a\\u0000b"', "plughost.toml: data_dir: must not contain the character U+0000"),
        ("[log]\naudit = ''", "plughost.toml: log.audit: must not be empty: leave it out"),
        (
            '[sites.main.security_headers]\ncontent_security_policy = """default-src \'none\';\nimg-src \'self\'"""',
            "sites.main.security_headers.content_security_policy: must be one line of ASCII characters",
        ),
        ("[sites.main.security_headers]\nreferrer_policy = 'ü'", "referrer_policy: must be one line of ASCII"),
        ("[sites.main.cors]\nexpose = ['X-É']", "sites.main.cors.expose.0: 'X-É' is no name of a header"),
        ("[sites.main]\nhttp_port = 'eighty'", "plughost.toml: sites.main.http_port: must be a whole number"),
        ("data_dir = 3", "plughost.toml: data_dir: must be a path, in quotes"),
        (
            'address = "::1\n',
            "it is not valid TOML: a text lacks its quote at the end of the line (at line 1, column 15)",
        ),
        (
            "[sites.main]\n[log]\n[sites.main]",
            "it is not valid TOML: the table [sites.main] is there twice: put its keys under one header (at line 3,",
        ),
        ("[tls]\n[tls]", "it is not valid TOML: the table [tls] is there twice: put its keys under one header"),
        ("grace_time = -1", "plughost.toml: grace_time: "),
        ("grace_time = inf", "plughost.toml: grace_time: "),
        ("shutdown_delay = 1e300", "plughost.toml: shutdown_delay: must be less than or equal to 1000000"),
        ("[sites.main]\nidle_timeout = 99999999999999999999", "sites.main.idle_timeout: must be less than or equal to"),
        ("grace_time = true", "plughost.toml: grace_time: must be a number, not true"),
        ("body_limit = true", "plughost.toml: body_limit: must be a number, not true"),
        ("[sites.main]\nhttp_port = true", "plughost.toml: sites.main.http_port: must be a number, not true"),
        ("[stores]\npatience = false", "plughost.toml: stores.patience: must be a number, not false"),
        ("strict = 'perhaps'", "plughost.toml: strict: "),
        ("disabled = 'shop'", "plughost.toml: disabled: must be a list, in brackets"),
        ("plugins = 3", "plugins: it must hold one table a plugin"),
        ("[plugins]\nshop = 3", "plugins: it must hold one table a plugin"),
        ("[plugins.shop]\nlimt = 3", "plughost.toml: plugins.shop.limt: unknown key; did you mean limit?"),
        ("[plugins.shop]\nlimit = 0", "plughost.toml: plugins.shop.limit: "),
        ("[plugins.shop]\nsite = 'moon'", "plughost.toml: plugins.shop.site: "),
        ("[plugins.shop]\nbody_limit = 0", "plughost.toml: plugins.shop.body_limit: "),
        (
            "[plugins.shop.inner]\ndepht = 3",
            "plughost.toml: plugins.shop.inner.depht: unknown key; did you mean depth?",
        ),
        ("address = '300.1.1.1'", "plughost.toml: address: '300.1.1.1' is neither an IP address nor a host name"),
        ("[sites.main]\naddress = '127.0.0.1:80'", "plughost.toml: sites.main.address: '127.0.0.1:80' is neither"),
        ("[plugins.shop]\npin = 'abc'", "plughost.toml: plugins.shop.pin: a pin is made of digits"),
        ("[plugins.a-b]\n[plugins.a_b]", "plugins.a-b and plugins.a_b are the same plugin"),
        ("x = ", "it is not valid TOML"),
        ("x = 1\nx = 2", "it is not valid TOML"),
        ("x = " + "[" * 20000, "it is not valid TOML"),
        ("x = " + "9" * 5000, "it is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_reported(text: str, message: str, tmp_path: Path) -> None:
    """The message has the file, the dotted key and, for an unknown key, the most similar known one."""
    assert message in problems(text, tmp_path)


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    """One start reports everything that is wrong with the host's own settings."""
    assert len(problems("adress = 1\ngrace_time = -1\n[sites.main]\nthreads = 0", tmp_path).splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PLUGHOST_GRACE_TIME", "long", "environment: PLUGHOST_GRACE_TIME: "),
        ("PLUGHOST_SITES__MAIN__HTTP_PORT", "x", "environment: PLUGHOST_SITES__MAIN__HTTP_PORT: "),
        ("PLUGHOST_DISABLED", "[", "environment: PLUGHOST_DISABLED: it is not valid JSON"),
        ("PLUGHOST_SITES", "{", "environment: PLUGHOST_SITES: it is not valid JSON"),
        (
            "PLUGHOST_SITES__MAIN__LISTENERS",
            "http",
            "environment: PLUGHOST_SITES__MAIN__LISTENERS: it is not valid JSON",
        ),
        (
            "PLUGHOST_SITES__MAIN__HTTP_PRT",
            "5",
            "environment: PLUGHOST_SITES__MAIN__HTTP_PRT: unknown key; did you mean http_port?",
        ),
        ("PLUGHOST_SITES", '{"main": {"threads": 0}}', "environment: PLUGHOST_SITES: sites.main.threads: must be"),
        ("PLUGHOST_PLUGINS__SHOP__LIMIT", "0", "environment: PLUGHOST_PLUGINS__SHOP__LIMIT: "),
        ("PLUGHOST_PLUGINS__SHOP__NAMES", "a,b", "environment: PLUGHOST_PLUGINS__SHOP__NAMES: it is not valid JSON"),
        ("PLUGHOST_PLUGINS__SHOP__INNER__DEPTH", "deep", "environment: PLUGHOST_PLUGINS__SHOP__INNER__DEPTH: "),
        ("PLUGHOST_PLUGINS__SHOP__SITE", "moon", "environment: PLUGHOST_PLUGINS__SHOP__SITE: "),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(name: str, value: str, message: str, tmp_path: Path) -> None:
    """The message blames the variable, not the file."""
    assert message in problems("", tmp_path, **{name: value})


@pytest.mark.parametrize(
    ("name", "value", "key", "result"),
    [
        ("PLUGHOST_ADDRESS", "::1", "address", "::1"),
        ("PLUGHOST_SITES__MAIN__HTTP_PORT", "81", "sites.main.http_port", 81),
        ("PLUGHOST_SITES", '{"main":{"http_port":82}}', "sites.main.http_port", 82),
        ("PLUGHOST_DISABLED", '["a"]', "disabled", ["a"]),
        ("PLUGHOST_BODY_LIMIT", "2 MiB", "body_limit", 2097152),
        ("PLUGHOST_PLUGINS__SHOP__LIMIT", "9", "plugins.shop.limit", 9),
        ("PLUGHOST_PLUGINS__SHOP__NAMES", '["x"]', "plugins.shop.names", ["x"]),
        ("PLUGHOST_PLUGINS__SHOP__INNER__DEPTH", "4", "plugins.shop.inner.depth", 4),
        ("PLUGHOST_PLUGINS__SHOP__SITE", "library", "plugins.shop.site", "library"),
        ("PLUGHOST_STORES__URLS__CATALOG", "postgresql://x", "stores.urls", {"catalog": "**********"}),
    ],
)
def test_the_environment_overrides_the_file(name: str, value: str, key: str, result: Any, tmp_path: Path) -> None:
    """A variable overrides the file, and is shown as the source."""
    text = "address = '1.2.3.4'\n[sites.main]\nhttp_port = 1\n[plugins.shop]\nlimit = 2\nsite = 'main'\n"
    settings = read(text, tmp_path, **{name: value})
    shown = {each.key: each for each in settings.values({"shop": settings.plugin_settings("shop", Model)})}
    assert shown[key].value == result
    assert shown[key].source == name


def test_a_variable_writes_the_hyphens_of_a_store_as_underscores(tmp_path: Path) -> None:
    """Otherwise it would name no store, or not override the file. What it doesn't set stays as in the file."""
    text = "[stores.urls]\nlibrary-auth = 'sqlite'\n[stores.tuning.library-auth]\npool_size = 2\npatience = 9\n"
    variables = {
        "PLUGHOST_STORES__URLS__LIBRARY_AUTH": "postgresql://host/x",
        "PLUGHOST_STORES__TUNING__LIBRARY_AUTH__POOL_SIZE": "3",
    }
    config = read(text, tmp_path, **variables).stores.of("library-auth")
    assert (config.url, config.pool_size, config.patience) == ("postgresql://host/x", 3, 9)


@pytest.mark.parametrize("name", ["PLUGHOST_BODY_LIMIT", "PLUGHOST_LOG__LEVEL", "PLUGHOST_SITES", "PLUGHOST_DISABLED"])
def test_an_empty_variable_counts_as_not_set(name: str, tmp_path: Path) -> None:
    """The file's values are in force, also in tables, and the file is shown as their source."""
    settings = read("body_limit = 7\ndisabled = ['a']\n[log]\nlevel = 'debug'\n", tmp_path, **{name: ""})
    assert (settings.host.body_limit, settings.host.disabled, settings.host.log.level) == (7, ("a",), "debug")
    assert name not in {each.source for each in settings.values({})}


def test_other_keys_keep_their_source(tmp_path: Path) -> None:
    """Keys beside one that a variable sets are shown as from the file or as defaults."""
    settings = read("[sites.main]\nhttp_port = 1\n", tmp_path, PLUGHOST_SITES__MAIN__HTTPS_PORT="2")
    sources = {each.key: each.source for each in settings.values({})}
    assert sources["sites.main.http_port"] == "plughost.toml"
    assert sources["sites.main.https_port"] == "PLUGHOST_SITES__MAIN__HTTPS_PORT"
    assert sources["sites.main.threads"] == "default"


def test_secrets_are_masked_wherever_they_are(tmp_path: Path) -> None:
    """A secret in a nested table or a mapping is not shown, whether it is from the file or the environment."""
    text = f"""
        [tls]
        password = "{SECRET}"
        [stores]
        url = "{SECRET}"
        urls = {{catalog = "{SECRET}"}}
        [plugins.shop]
        token = "{SECRET}"
        tokens = {{a = "{SECRET}"}}
        inner = {{password = "{SECRET}"}}
    """
    settings = read(text, tmp_path, PLUGHOST_PLUGINS__SHOP__PIN="98765")
    shown = json.dumps([str(each) for each in settings.values({"shop": settings.plugin_settings("shop", Model)})])
    assert "password" in shown
    assert SECRET not in shown
    assert "98765" not in shown
    assert SECRET not in repr(settings.plugin_settings("shop", Model))


def test_the_password_of_a_url_is_masked_in_any_setting(tmp_path: Path) -> None:
    """The rest of the URL is shown; URLs without a password are shown as they are."""
    urls = [f"https://me:{SECRET}@example.org/simple", "https://example.org:443/simple"]
    settings = read(f"[plugins.shop]\nnames = {urls}", tmp_path)
    shown = {each.key: each.value for each in settings.values({"shop": settings.plugin_settings("shop", Model)})}
    assert shown["plugins.shop.names"] == [urls[0].replace(SECRET, "*" * 10), urls[1]]


@pytest.mark.parametrize(
    "text",
    [
        f"[tls]\npassword = ['{SECRET}']",
        f"[stores]\nurl = {{a = '{SECRET}'}}",
        f"[stores.urls]\ncatalog = ['{SECRET}']",
        f"[plugins.shop]\npin = '{SECRET}'",
        f"[plugins.shop]\ntoken = ['{SECRET}']",
        f"[plugins.shop]\ntokens = ['{SECRET}']",
        f"[plugins.shop.inner]\npassword = ['{SECRET}']",
        f"[plugins.shop]\ntoken = '{SECRET}",
    ],
)
def test_no_message_holds_a_secret(text: str, tmp_path: Path) -> None:
    """A mistake in a secret or beside it is reported without the value."""
    assert SECRET not in problems(text, tmp_path)


def test_no_message_about_the_environment_holds_a_secret(tmp_path: Path) -> None:
    """A variable that can't be parsed is reported without its value."""
    assert SECRET not in problems("", tmp_path, PLUGHOST_PLUGINS__SHOP__TOKENS=SECRET)


def test_a_variable_that_is_not_in_capitals_sets_nothing(tmp_path: Path) -> None:
    """Variables of other cases are other variables: one such as PLUGHOST_strict sets nothing, and is warned of."""
    settings = read("", tmp_path, PLUGHOST_strict="true")
    assert not settings.host.strict
    assert "PLUGHOST_strict is no setting" in settings.unknown_variables({})[0]


def test_other_programs_variables_set_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable without the prefix, such as ADDRESS or STRICT of another service, is no setting."""
    for name, value in (("ADDRESS", "192.0.2.1"), ("STRICT", "true"), ("LOG", '{"level": "debug"}')):
        monkeypatch.setenv(name, value)
    host = read_settings(environment={}).host
    assert (host.address, host.strict, host.log.level) == ("127.0.0.1", False, "info")


def test_an_unknown_variable_is_a_warning(tmp_path: Path) -> None:
    """A variable that sets nothing is only a warning: orchestrators set some with this prefix."""
    below = ("GRACE_TIME__X", "PLUGINS__SHOP__LIMIT__X")  # deeper than the key
    nothing = ("ADRESS", *below, "PORT_8080_TCP")
    right = ("ADDRESS", "PLUGINS__SHOP__LIMIT", "PLUGINS__SHOP__INNER__DEPTH", "STORES__URLS__CATALOG", "CONFIG")
    environment = dict.fromkeys([*(f"PLUGHOST_{name}" for name in (*nothing, *right)), "OTHER"], "::1")
    warned = read("", tmp_path, **environment).unknown_variables({"shop": Model()})
    assert [each.split()[1] for each in warned] == [f"PLUGHOST_{name}" for name in nothing]
    assert warned[0] == "environment: PLUGHOST_ADRESS is no setting; did you mean PLUGHOST_ADDRESS?"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("HTTP__PORT", "did you mean PLUGHOST_SITES__MAIN__HTTP_PORT?"),
        ("SHOP__LIMIT", "did you mean PLUGHOST_PLUGINS__SHOP__LIMIT?"),
        ("LOGLEVEL", "did you mean PLUGHOST_LOG__LEVEL?"),
        ("PORT", "nearest: PLUGHOST_SITES__MAIN__HTTP_PORT, PLUGHOST_SITES__MAIN__HTTPS_PORT, "),
        ("SERVICE_PORT", "`plughost settings` lists all"),
    ],
)
def test_the_prefix_does_not_count_for_similarity(name: str, advice: str, tmp_path: Path) -> None:
    """The prefix makes no two variables similar; the words after it do."""
    (warning,) = read("", tmp_path, **{f"PLUGHOST_{name}": "1"}).unknown_variables({"shop": Model()})
    assert warning.startswith(f"environment: PLUGHOST_{name} is no setting; {advice}")


def test_a_table_of_a_plugin_that_is_not_installed_is_a_warning(tmp_path: Path) -> None:
    """Plugins may be removed while their tables stay; for a misspelt table, the most similar name is suggested."""
    settings = read("[plugins.shpo]\nx = 1\n[plugins.catalog_v1]\n", tmp_path)
    warnings = ["plughost.toml: plugins.shpo: no such plugin is installed; did you mean shop?"]
    assert settings.unknown_plugins(["shop", "catalog-v1"]) == warnings


def test_relative_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the settings are relative to the file's folder, wherever the host is started."""
    (tmp_path / "etc").mkdir()
    settings = read("data_dir = 'data'", tmp_path / "etc")
    monkeypatch.chdir(tmp_path)
    assert settings.data_dir == tmp_path / "etc" / "data"
    assert settings.path(Path("cert.pem")) == tmp_path / "etc" / "cert.pem"
    assert settings.path(Path("/cert.pem")) == Path("/cert.pem")


def test_without_a_file_the_current_folder_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is needed; plughost.toml in the current folder is used, or the file that PLUGHOST_CONFIG names."""
    monkeypatch.chdir(tmp_path)
    assert read_settings(None, {}).data_dir == tmp_path / "plughost-data"
    (tmp_path / "plughost.toml").write_text("address = '::1'")
    assert read_settings(None, {}).host.address == "::1"
    (tmp_path / "other.toml").write_text("address = '::2'")
    assert read_settings(None, {"PLUGHOST_CONFIG": "other.toml"}).host.address == "::2"


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """A file that an editor began with a byte order mark can be read."""
    (tmp_path / "plughost.toml").write_bytes(b"\xef\xbb\xbfaddress = '::1'")
    assert read_settings(tmp_path / "plughost.toml", {}).host.address == "::1"


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    """The message for a missing file, a folder, bytes that are no text or a lack of permission has the path."""
    binary, locked = tmp_path / "binary.toml", tmp_path / "locked.toml"
    binary.write_bytes(os.urandom(1000) + b"\xff\xfe")
    locked.write_text("")
    locked.chmod(0)
    unreadable = [tmp_path / "missing.toml", tmp_path, binary]
    if os.geteuid() != 0:
        unreadable.append(locked)
    for file in unreadable:
        with pytest.raises(SettingsError, match=str(file)):
            read_settings(file, {})


def test_reading_again_keeps_start_only_settings(tmp_path: Path) -> None:
    """Settings that are read at start only keep their values and are reported; the rest is new."""
    settings = read("address = '::1'\n", tmp_path)
    (tmp_path / "plughost.toml").write_text("address = '::2'\ngrace_time = 1\n[log]\nlevel = 'error'\n")
    again, warnings = settings.reread()
    assert (again.host.address, again.host.log.level, again.host.grace_time) == ("::1", "info", 1)
    assert [line.split()[2] for line in warnings] == ["address", "log"]


def test_of_the_tls_settings_only_the_policy_is_read_at_start_only(tmp_path: Path) -> None:
    """A new certificate file is used at once; a new policy is reported, and the old one stays."""
    settings = read("[tls]\ncertificate = 'a.pem'\n", tmp_path)
    (tmp_path / "plughost.toml").write_text("[tls]\ncertificate = 'b.pem'\npolicy = 'modern'\n")
    again, warnings = settings.reread()
    assert (again.host.tls.certificate, again.host.tls.policy) == (Path("b.pem"), "intermediate")
    assert warnings == ("the setting tls.policy changed, and is read at start only",)


def test_the_start_only_keys_exist() -> None:
    """Every key that is read at start only is a key of the host's settings."""
    assert [attrgetter(key)(HostSettings()) for key in RESTART_ONLY]
