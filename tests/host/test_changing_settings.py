"""Changing a setting of a running host, by a trusted plugin."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, Field, SecretStr

from plughost import CommandError, PluginContext, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host

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

    @hookimpl
    def register_settings(self) -> type[Settings]:
        """Return the model."""
        return self.Settings

    @hookimpl
    def started(self, context: PluginContext[Settings]) -> None:
        """Say the word."""
        context.announce(context.settings.word)
        context.offer_login("ann", lambda: "a token of ann")


@pytest.fixture
def host() -> Iterator[RunningHost]:
    """A host whose settings file has comments, and one of whose settings is a variable's."""
    with running_host(distributions=[plugin_distribution("greeting", Greeting)]) as running:
        file = _file(running)
        file.write_text(file.read_text().replace("grace_time = 10\n", "grace_time = 3 # seconds\n") + WRITTEN)
        assert running.host.reload().swapped
        running.host.settings = replace(running.host.settings, environment={"PLUGHOST_HOOK_TIMEOUT": "20"})
        yield running


def _file(host: RunningHost) -> Path:
    assert host.host.settings.file is not None
    return host.host.settings.file


def _words(host: RunningHost) -> list[str]:
    assert host.host.generation is not None
    return list(host.host.generation.announcements())


def test_a_setting_is_changed_and_comments_stay(host: RunningHost) -> None:
    """The preview is what the file becomes, and the plugin is given the new value."""
    before = _file(host).read_text()
    preview = host.host.preview_setting("plugins.greeting.word", "howdy")
    assert preview.diff.splitlines()[-2:] == ['-word = "hi"', '+word = "howdy"']
    assert not preview.at_restart
    assert _words(host) == ["hi"]
    assert host.host.change_setting("plugins.greeting.word", "howdy").changed == ("greeting",)
    assert _words(host) == ["howdy"]
    assert _file(host).read_text() == before.replace('"hi"', '"howdy"')
    host.host.change_setting("plugins.greeting.word", None)
    assert _words(host) == ["hello"]
    assert "# between friends" in _file(host).read_text()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("plugins.greeting.times", 0, "greater than or equal to 1"),
        ("grace_time", "soon", "number"),
        ("nothing", 1, "There is no setting nothing"),
        ("plugins.greeting.secret", "y", "is a secret"),
        ("hook_timeout", 9.0, "The variable PLUGHOST_HOOK_TIMEOUT overrides"),
    ],
)
def test_what_is_not_valid_changes_nothing(host: RunningHost, key: str, value: object, why: str) -> None:
    """The reason is told, by the preview too, and the file stays."""
    before = _file(host).read_text()
    for change in (host.host.preview_setting, host.host.change_setting):
        with pytest.raises(CommandError, match=why):
            change(key, value)
    assert _file(host).read_text() == before


def test_what_is_read_at_start_only_is_said_to_be(host: RunningHost) -> None:
    """The preview says so."""
    assert host.host.preview_setting("log.level", "debug").at_restart


def test_whom_the_settings_trust_is_told_at_a_reload(host: RunningHost) -> None:
    """A plugin that nothing else happened to is asked anew once it may control the host, or no longer may."""
    text = _file(host).read_text()
    for trusted, now in (("['greeting']", True), ("[]", False)):
        _file(host).write_text(f"trusted = {trusted}\n{text}")
        assert host.host.reload().changed == ("greeting",)
        assert host.host.generation is not None
        assert [entry.context.trusted for entry in host.host.generation.registry] == [now]
    assert host.host.reload().reused == ("greeting",)


def test_demo_logins_are_for_trusted_plugins_in_development(host: RunningHost) -> None:
    """What a plugin offers is there with --dev, and not without."""
    assert host.host.logins["ann"]() == "a token of ann"
    with running_host(distributions=[plugin_distribution("greeting", Greeting)], dev=False) as other:
        assert other.host.logins == {}


def test_what_a_killed_process_left_of_the_file_is_removed(host: RunningHost) -> None:
    """The next change removes it once it is an hour old; somebody may be writing what is newer."""
    file = _file(host)
    old, new = (file.with_name(f".{file.name}.{number}.private-tmp") for number in (1, 2))
    for left in (old, new):
        left.write_text("half of the")
    os.utime(old, (time.time() - 4000,) * 2)
    host.host.change_setting("grace_time", 4.0)
    assert not old.exists()
    assert new.exists()
