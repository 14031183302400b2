"""Previews for commands without a running host, and the name of a plugin's only command."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner
from tests.host.plugins import Plugin, Speaker

from plughost._api.bounded import Interrupted
from plughost._cli import main, plugin_commands
from plughost._logging import silent_logger
from plughost._plugins.environment import Environment
from plughost._runtime.host import Host
from plughost._settings.sources import read_settings
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from plughost import RouteGroup
    from plughost._api.context import PluginContext


def test_a_preview_shows_what_would_be_served(tmp_path: Path) -> None:
    """A command without a running host sees the sites, plugins and listeners that would serve, and starts nothing."""
    speaker = Speaker("hello")
    file = tmp_path / "plughost.toml"
    file.write_text('address = "::1"\n[sites.main]\nlisteners = ["http"]\nhttp_port = 8123\n')
    distributions = [plugin_distribution("speaker", speaker)]
    host = Host(read_settings(file, environment={}), logger=silent_logger(), distributions=lambda: distributions)
    assert (host.view.generation, dict(host.view.sites), dict(host.view.listeners)) == (0, {}, {})
    preview = host.view.preview()
    assert [group.prefix for _, group in preview.sites["main"].groups] == ["/say"]
    assert [plugin.state for plugin in preview.plugins] == ["active"]
    assert [(str(listener), port) for listener, port in preview.listeners.items()] == [("http://[::1]:8123", 8123)]
    assert speaker.calls == []
    assert host.generation.number == 0


def test_a_stop_does_not_wait_for_a_preview_that_hangs() -> None:
    """It ends the preview, which has the lock that a stop needs, too."""
    previewing, entered, release = threading.Event(), threading.Event(), threading.Event()

    def hang(context: PluginContext[None]) -> list[RouteGroup]:
        if previewing.is_set():
            entered.set()
            release.wait(30)
        return []

    installed = [plugin_distribution("slow", Plugin(register_routes=hang))]
    with running_host(distributions=installed) as host, ThreadPoolExecutor(1) as pool:
        previewing.set()
        preview = pool.submit(host.host.view.preview)
        assert entered.wait(30)
        host.host.lifecycle.stop_requests.add()
        assert host.host.stop()
        assert isinstance(preview.exception(30), Interrupted)
        release.set()


@click.command("tool")
@click.argument("word")
@click.pass_obj
def tool(context: PluginContext[None], word: str) -> None:
    """Print a word."""
    click.echo(f"{context.plugin} {context.host.preview().generation} {word}")


@click.command("other")
def other() -> None:
    """Print another word."""


@pytest.mark.parametrize(
    ("commands", "arguments", "output"),
    [
        ((tool,), ("tool", "hi"), "tool 1 hi\n"),
        ((tool,), ("tool", "--config", "other.toml", "hi"), "tool 1 hi\n"),
        ((tool, other), ("tool", "tool", "hi"), "tool 1 hi\n"),
    ],
)
def test_a_plugins_only_command_has_the_plugins_name(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    commands: tuple[click.Command, ...],
    arguments: tuple[str, ...],
    output: str,
) -> None:
    """A single command with the plugin's name replaces the group, with `--config`; several commands form a group."""
    monkeypatch.chdir(tmp_path)
    Path("other.toml").write_text("")
    installed = [plugin_distribution("tool", Plugin(register_commands=lambda: commands))]
    monkeypatch.setattr(plugin_commands, "Environment", lambda **options: Environment(installed, **options))
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (0, output)
