"""A trusted plugin changes a setting of a running host."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from plughost import CommandError, PluginContext, RouteGroup, hookimpl
from plughost._api.reload_report import ReloadReport
from plughost._runtime.trusted import TrustedControl
from plughost._settings.editing import with_value
from plughost.testing import RunningHost, plugin_distribution, running_host

from .plugins import Says, group_of

WRITTEN = """
[plugins.greeting]
# between friends
word = "hi"
"""


class Greeting:
    """A plugin with settings."""

    class Settings(BaseModel):
        """Its table."""

        word: str = "hello"
        times: int = Field(1, ge=1)
        secret: SecretStr = SecretStr("x")
        unset: SecretStr | None = None

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model."""
        return self.Settings

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Announce the word."""
        context.announce(context.settings.word)
        context.offer_login("ann", lambda: "a token of ann")


@pytest.fixture
def host() -> Iterator[RunningHost]:
    """A host whose settings file has comments; an environment variable sets one of its settings."""
    with running_host(distributions=[plugin_distribution("greeting", Greeting)]) as running:
        file = _file(running)
        file.write_text(file.read_text().replace("grace_time = 10\n", "grace_time = 3 # seconds\n") + WRITTEN)
        assert running.host.reload().swapped
        settings = replace(running.host.settings, environment={"PLUGHOST_HOOK_TIMEOUT": "20"})
        running.host.generation = replace(running.host.generation, settings=settings)
        yield running


def _file(host: RunningHost) -> Path:
    assert host.host.settings.file is not None
    return host.host.settings.file


def _words(host: RunningHost) -> list[str]:
    assert host.host.generation is not None
    return list(host.host.generation.announcements())


def test_changing_a_setting_keeps_the_comments(host: RunningHost) -> None:
    """The preview shows the file's next content, and the plugin receives the new value."""
    before = _file(host).read_text()
    preview = host.host.view.control.preview_setting("plugins.greeting.word", "howdy")
    assert preview.diff.splitlines()[-2:] == ['-word = "hi"', '+word = "howdy"']
    assert not preview.at_restart
    assert _words(host) == ["hi"]
    assert host.host.view.control.change_setting("plugins.greeting.word", "howdy").changed == ("greeting",)
    assert _words(host) == ["howdy"]
    assert _file(host).read_text() == before.replace('"hi"', '"howdy"')
    host.host.view.control.change_setting("plugins.greeting.word", None)
    assert _words(host) == ["hello"]
    assert "# between friends" in _file(host).read_text()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("plugins.greeting.times", 0, "greater than or equal to 1"),
        ("grace_time", "soon", "number"),
        ("nothing", 1, "There is no setting nothing"),
        ("plugins.greeting.secret", "y", "is a secret"),
        ("plugins.greeting.unset", "y", "is a secret"),
        ("stores.url", "postgresql://me:sesame@db/x", "is a secret"),
        ("hook_timeout", 9.0, "The variable PLUGHOST_HOOK_TIMEOUT overrides"),
    ],
)
def test_an_invalid_value_changes_nothing(host: RunningHost, key: str, value: object, why: str) -> None:
    """The error and the preview give the reason, and the file stays as it is."""
    before = _file(host).read_text()
    for change in (host.host.view.control.preview_setting, host.host.view.control.change_setting):
        with pytest.raises(CommandError, match=why):
            change(key, value)
    assert _file(host).read_text() == before


@pytest.mark.parametrize(
    ("text", "key", "value", "after"),
    [
        ("sites.main.http_port = 1", "strict", True, {"sites": {"main": {"http_port": 1}}, "strict": True}),
        ("log.level = 'info'\ngrace_time = 3\n", "log.level", None, {"grace_time": 3}),
        ("log.level = 'info'\naddress = '::'\n", "log.level", "debug", {"log": {"level": "debug"}, "address": "::"}),
    ],
)
def test_dotted_keys_are_edited(text: str, key: str, value: object, after: dict[str, Any]) -> None:
    """A key is set, or removed with its tables, whether or not the last line has an end."""
    changed = tomllib.loads(with_value(text, key, value))
    assert {name: each for name, each in changed.items() if each != {}} == after


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("sites.main.http_port = 1\naddress = '::'\n", "sites.library.threads", 5),
        ("plugins.one = {a = 1}\ntls = {policy = 'modern'}\n", "plugins.two.b", 5),
        ("[[plugins.one.a]]\n[plugins.one]\n[[plugins.one.a]]\n", "plugins.one.a", 5),
        ("[[plugins.one.a]]\n[plugins.one]\nb = 1\n", "plugins.one.a", []),
        ("[[plugins.one.a]]\nb = 1\n", "plugins.one.a", ["b"]),
    ],
)
def test_an_edit_that_the_layout_does_not_allow_is_refused(text: str, key: str, value: object) -> None:
    """A new table would stand before `address`, which would then belong to it; tomlkit can't write the others."""
    with pytest.raises(CommandError, match="without changing other settings: edit the settings file by hand"):
        with_value(text, key, value)


def test_a_refused_change_keeps_what_somebody_edited_meanwhile(host: RunningHost) -> None:
    """The error names the setting that stays, since the whole file can't be restored."""
    file = _file(host)

    def edit_and_refuse(*_: object, **__: object) -> ReloadReport:
        file.write_text(file.read_text() + "# by hand\n")
        return ReloadReport(swapped=False, generation=1, problems=("refused",), seconds={})

    control = TrustedControl(host.host, edit_and_refuse, host.host.preview)
    with pytest.raises(CommandError, match="was edited meanwhile, so strict was not set back: do it by hand"):
        control.change_setting("strict", True)
    assert file.read_text().endswith("# by hand\n")


def test_the_preview_says_that_a_setting_is_read_at_start_only(host: RunningHost) -> None:
    """A change of such a setting takes effect after a restart."""
    assert host.host.view.control.preview_setting("log.level", "debug").at_restart


def test_a_reload_applies_a_change_of_trust(host: RunningHost) -> None:
    """The hooks of an otherwise unchanged plugin are called again when the settings start or stop to trust it."""
    text = _file(host).read_text()
    for trusted, now in (("['greeting']", True), ("[]", False)):
        _file(host).write_text(f"trusted = {trusted}\n{text}")
        assert host.host.reload().changed == ("greeting",)
        assert host.host.generation is not None
        assert [entry.context.trusted for entry in host.host.generation.registry] == [now]
    assert host.host.reload().reused == ("greeting",)


def test_demo_logins_need_a_trusted_plugin_and_development_mode(host: RunningHost) -> None:
    """The logins that a plugin offers exist with --dev, and don't exist without it."""
    assert host.host.view.control.logins["ann"]() == "a token of ann"
    with running_host(distributions=[plugin_distribution("greeting", Greeting)], dev=False) as other:
        assert other.host.view.control.logins == {}


def test_the_temporary_file_of_a_killed_process_is_removed(host: RunningHost) -> None:
    """The next change removes it once it is an hour old; a newer one may still be in use."""
    file = _file(host)
    old, new = (file.with_name(f".{file.name}.{number}.private-tmp") for number in (1, 2))
    for left in (old, new):
        left.write_text("half of the")
    os.utime(old, (time.time() - 4000,) * 2)
    host.host.view.control.change_setting("grace_time", 4.0)
    assert not old.exists()
    assert new.exists()


class Movable:
    """A plugin whose prefix is a setting."""

    class Settings(BaseModel):
        """Its table."""

        prefix: str = "/shared"

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model."""
        return self.Settings

    @hookimpl
    def register_routes(self, context: PluginContext[Settings]) -> list[RouteGroup]:
        """Mount a route below the prefix."""
        return [group_of(Says("moved"), context.settings.prefix)]


def test_what_a_plugin_declared_before_its_settings_changed_is_no_conflict() -> None:
    """It moves to the site of another plugin with its old prefix, and takes another prefix with it."""
    distributions = [plugin_distribution("movable", Movable), plugin_distribution("other", Movable)]
    settings = {"plugins": {"other": {"site": "library"}}}
    with running_host(distributions=distributions, settings=settings) as host:
        file = _file(host)
        file.write_text(f'{file.read_text()}\n[plugins.movable]\nsite = "library"\nprefix = "/own"\n')
        report = host.host.reload()
        assert (report.changed, report.reused, report.problems) == (("movable",), ("other",), ())
