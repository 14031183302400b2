"""The commands of plugins: `plughost <plugin> ...`. Only the plugin that is called is imported.

If a plugin's only command has the plugin's name, no group is needed: `plughost <plugin> [OPTIONS]`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plughost._api.errors import PluginError
from plughost._cli.options import (
    config_file_option,
    group_config_option,
    load_settings,
    settings_or_defaults,
    with_full_help,
)
from plughost._commands import ALIASES
from plughost._logging import silent_logger
from plughost._plugins import registration
from plughost._plugins.environment import HOST, Environment
from plughost._plugins.registry import PluginRecord, Registry, State
from plughost._runtime.audit import CommandAudit
from plughost._runtime.building import set_contexts
from plughost._runtime.control import reload_running
from plughost._runtime.host import Host
from plughost.stores._manager import prepare_stores

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.environment import InstalledPlugin
    from plughost._plugins.failures import Failure
    from plughost.stores import OpenStore


def names_with_commands(ctx: click.Context) -> list[str]:
    """Return the names of the enabled plugins that have commands."""
    disabled = settings_or_defaults().host.disabled
    enabled = [each.name for each in _installed_plugins(ctx) if each.name not in disabled]
    return [name for name in enabled if (command := find(ctx, name)) is not None and not command.hidden]


def find(ctx: click.Context, name: str) -> click.Command | None:
    """Return the command or the group of a plugin, or None if no plugin of this name is installed."""
    cached: dict[str, click.Command | None] = ctx.meta.setdefault(f"{__name__}.commands", {})
    if name not in cached:
        found = _installed_plugins(ctx)
        cached[name] = _build_command(name, found) if any(each.name == name for each in found) else None
    return cached[name]


def find_alias(ctx: click.Context, name: str) -> click.Command | None:
    """Return the command behind an alias, or one that fails with the reason, or None if the name is no alias."""
    plugin = ALIASES.get(name)
    if plugin is None:
        return None
    group = find(ctx, plugin)
    command = group.get_command(ctx, name) if isinstance(group, click.Group) else group
    if command is not None:
        return command
    cause = f"`plughost {name}` comes with the distribution {HOST}-{plugin}, which is not installed"
    return _unavailable_command(name, f"{cause}. Install it from the same source as {HOST}.")


def commands_of(registry: Registry, entry: PluginRecord) -> tuple[click.Command, ...]:
    """Return the commands of a plugin. Mark it as failed if they are invalid."""
    hook = "register_commands"

    def call() -> tuple[click.Command, ...]:
        commands = registration.require_items(click.Command, registry.call(entry, hook))
        names = [command.name for command in commands]
        for name in names:
            if not name or name.startswith("-") or len(name.split()) > 1:
                raise PluginError(f"no command can be called {name!r}", "Name it by one word.")
            if names.count(name) > 1:
                raise PluginError(f"it returned two commands called {name}", "Give one of them another name.")
        return commands

    return (registry.attempt(entry, hook, call) if hook in entry.hooks else None) or ()


def command_failures(registry: Registry, entries: Iterable[PluginRecord]) -> Iterator[tuple[str, Failure]]:
    """Yield the label of each of these plugins that serves but whose commands are invalid, and the reason."""
    for entry in entries:
        if entry.state is State.ACTIVE:
            tried = replace(entry)  # a copy, so that the plugin itself doesn't fail
            commands_of(registry, tried)
            if tried.failure is not None:
                yield entry.installed.label, tried.failure


def _installed_plugins(ctx: click.Context) -> tuple[InstalledPlugin, ...]:
    """Return the installed plugins. Search only once per run: this is the slowest part of `--help`."""
    key = f"{__name__}.found"
    if key not in ctx.meta:
        ctx.meta[key] = Environment(allowed=settings_or_defaults().host.allowed).plugins
    found: tuple[InstalledPlugin, ...] = ctx.meta[key]
    return found


def _build_command(name: str, found: Collection[InstalledPlugin]) -> click.Command:
    """Return the command of a plugin, or a group of its commands. They get the plugin's context as click's object."""
    registry, entry = _load_with_required(name, found)
    commands = commands_of(registry, entry)
    if entry.failure is not None or not commands:
        return _unavailable_command(name, f"{entry.installed.label}: {entry.failure or 'this plugin has no commands'}")
    with_config = [_with_config(name, command) for command in commands]
    if [command.name for command in commands] == [name]:
        return with_config[0]
    return group_config_option(click.Group(name, with_config, help=f"Commands of the plugin {name}."))


def _load_with_required(name: str, found: Collection[InstalledPlugin]) -> tuple[Registry, PluginRecord]:
    """Import a plugin and those that it requires, but no others."""
    wanted = next(each for each in found if each.name == name)
    registry = Registry(each for each in found if each.name == name or each.name in wanted.requires)
    registration.load(registry)
    return registry, next(entry for entry in registry if entry.installed is wanted)


def _with_config(name: str, command: click.Command) -> click.Command:
    """Return a copy of a command or group that takes `--config` and gets the plugin's context."""
    wrapped = with_full_help(copy.copy(command))
    if isinstance(wrapped, click.Group):
        wrapped.commands = {key: _with_config(name, each) for key, each in wrapped.commands.items()}
        return wrapped
    wrapped.params = [*command.params]
    return config_file_option(partial(_set_context, name))(wrapped)


def _set_context(name: str, config: Path | None) -> None:
    """Give a plugin's context to its command, as click's object."""
    settings = load_settings(config)
    registry, entry = _load_with_required(name, Environment(allowed=settings.host.allowed).plugins)
    registration.validate_settings(registry, settings)
    host = _CommandHost(settings)
    host.audit = CommandAudit(settings)
    # Aliases are the operator's own commands, and control the host.
    set_contexts(host, registry, settings, trusted=(*settings.host.trusted, *ALIASES.values()))
    if "register_stores" in entry.hooks and entry.state is State.ACTIVE:
        registration.declare_stores(registry)
        stores = prepare_stores({name: entry.declared.stores}, settings.stores)
        for failure in stores.failures.values():
            raise click.ClickException(str(failure))
        stores.open()  # the first operation of each connects, since most commands use none
        entry.context = replace(entry.context, stores=stores)
    if entry.state is not State.ACTIVE:
        raise click.ClickException(f"{entry.installed.label}: {entry.failure}")
    click.get_current_context().obj = entry.context


class _CommandHost(Host):
    """The host of a plugin's command. It never serves, but passes commands on to the running host."""

    def reload(self, accept: Collection[str] = (), *, origin: Mapping[str, Any] | None = None) -> ReloadReport:
        return reload_running(self.settings.data_dir, accept)

    @cached_property
    def stores(self) -> Mapping[str, OpenStore[Any]]:
        """The stores of all installed plugins, even disabled ones, prepared but not open."""
        self.generation = Host(self.settings.with_all_enabled(), logger=silent_logger()).dry_run()
        return self.generation.stores


def _unavailable_command(name: str, message: str) -> click.Command:
    """Return a hidden command that fails with the reason why it is unavailable, whatever its arguments are."""

    def fail() -> None:
        raise click.ClickException(message)

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=fail, hidden=True, context_settings=settings)
