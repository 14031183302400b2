"""`plughost plugins`, `routes`, `settings` and `init`: show what a host would serve, and its settings."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from packaging.utils import canonicalize_name
from rich.text import Text

from plughost._cli.completing import plugin_names, setting_names
from plughost._cli.options import (
    EXIT_PROBLEMS,
    config_option,
    console,
    host_options,
    is_wide,
    json_option,
    preview_generation,
    print_json,
    print_rows,
    say,
    state_text,
)
from plughost._plugins.distributions import find_distributions
from plughost._plugins.environment import ENTRY_POINT_GROUP, HOST, Environment, misplaced_entry_points
from plughost._plugins.registry import PluginRecord, State
from plughost._settings.masking import MASK
from plughost._settings.sources import DEFAULT_FILE, default_settings
from plughost._tracebacks import own_frames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from plughost._api.host import Value
    from plughost._plugins.distributions import InstalledDistribution
    from plughost._plugins.failures import Failure
    from plughost._plugins.registry import Registry
    from plughost._runtime.generation import Generation
    from plughost._settings.sources import Settings

_HEADER: Final = """\
# The settings of plughost. Each commented line shows a default or, where it says so, an example. To set one, remove
# the # and edit the value. A table, such as [tls], may be there only once: add keys below its header.
# Lists of plugins contain names as `plughost plugins` shows them. `plughost check` checks the settings,
# `plughost reload` applies changes to a running host.
"""

_HOW_TO_DECLARE = f"""\
If it should be a plugin, its author adds an entry point to pyproject.toml, and installs it again:
  [project.entry-points."{ENTRY_POINT_GROUP}"]
  NAME = "PACKAGE.MODULE\""""


@click.command()
@json_option
@click.option(
    "--why",
    metavar="NAME",
    shell_complete=plugin_names,
    help="Explain why one plugin or installed distribution serves or not.",
)
@host_options
@config_option
def plugins(*, settings: Settings, dev: bool, without: Collection[str], why: str | None, as_json: bool) -> None:
    """List the installed plugins: version, state, sites, and why one does not serve.

    The list shows what a host would serve if it started now. `plughost status` shows what the running host serves.
    Exit code 1 if a plugin fails or is blocked, or if the host can't start.
    """
    generation = preview_generation(settings, without, dev=dev, rehearsed=True)
    if why is not None:
        _explain(why, generation, as_json)
        return
    entries = sorted(generation.registry, key=lambda each: each.name)
    if as_json:
        print_json([_plugin_as_plain(entry) for entry in entries])
    elif not entries:
        say("No plugin is installed. Install one: plughost install catalog-v2 -f FOLDER")
    else:
        names = ("plugin", "distribution", "version", "state", "site", "hooks")
        rows = [_plugin_row(entry) for entry in entries]
        out = console()
        # The distribution is nearly the plugin's name: rather that one is missing than that both are broken.
        needed = sum(2 + max(map(len, map(str, column))) for column in list(zip(names, *rows, strict=True))[:-1])
        wide = ["hooks"] if is_wide(out) or needed <= out.width else ["distribution", "hooks"]
        print_rows(out, names, rows, wide=wide, omitted=" and ".join(wide))
        for entry in entries:
            if entry.failure is not None:
                say(f"\n{entry.installed.label} is {entry.state}.\n  {entry.failure}")
    if not as_json:
        for problem in generation.problems:
            say(f"\nproblem: {problem}")
        for warning in generation.warnings:
            say(f"\nwarning: {warning}")
    if generation.problems or any(entry.failure is not None for entry in entries):
        raise SystemExit(EXIT_PROBLEMS)


@click.command()
@json_option
@host_options
@config_option
def routes(settings: Settings, dev: bool, without: Collection[str], as_json: bool) -> None:
    """List all routes: site, methods, path, plugin and supported minor versions."""
    rows = list(_routes(preview_generation(settings, without, dev=dev)))
    if as_json:
        print_json(rows)
    elif not rows:
        say("No route is mounted.")
    else:
        out = console()
        names = ("site", "methods", "path", "plugin", "versions", "does")
        omitted = "the versions, and a summary of each method"
        cells = [row for each in rows for row in _route_rows(each, by_method=is_wide(out))]
        print_rows(out, names, cells, wide=["versions", "does"], omitted=omitted)


@click.command("settings")
@click.argument("keys", metavar="[KEY]...", nargs=-1, shell_complete=setting_names)
@json_option
@host_options
@config_option
def settings(*, settings: Settings, keys: tuple[str, ...], dev: bool, without: Collection[str], as_json: bool) -> None:
    """Show the effective settings, or only the KEYs and tables named.

    If a value differs from the default, its line also shows the default and where the value is set. Secrets are masked.
    --json also shows each default and description.
    """
    generation = preview_generation(settings, without, dev=dev)
    values = [value for value in generation.setting_values() if _is_wanted(value.key, keys)]
    unknown = [entry for entry in generation.registry if _hides_settings(entry, keys)]
    if not values:
        for entry in unknown:
            message = f"{entry.name} is {entry.state}, so its settings are unknown: plughost plugins --why {entry.name}"
            raise click.ClickException(message)
        raise click.ClickException(f"There is no setting {' '.join(keys)}; plughost settings lists all.")
    if as_json:
        print_json([asdict(value) for value in values])
        return
    out = console()
    for value in values:
        line = Text(f"{value.key} = {_toml(value.value)}")
        if value.source != "default":
            line.stylize("bold")
            line.append(f"  # {value.source}; by default {_toml(value.default)}", style="dim not bold")
        out.print(line, soft_wrap=True)
    for warning in generation.warnings:
        say(f"warning: {warning}", err=True)
    for entry in unknown:
        cause = entry.failure.cause if entry.failure is not None else ""
        say(f"warning: {entry.name} is {entry.state}, so its settings are not shown: {cause}", err=True)


@click.command()
@click.argument("file", default=DEFAULT_FILE, type=click.Path(path_type=Path, dir_okay=False))
def init(file: Path) -> None:
    """Create a settings file with every setting of the host and the installed plugins.

    All settings are commented out, each with a description and its default or an example. FILE is ./plughost.toml by
    default. An existing file is not overwritten.
    """
    text = "\n".join([_HEADER, *_settings_lines(preview_generation(default_settings()).setting_values()), ""])
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise click.ClickException(f"{file} already exists. Name another file, or move it away.") from None
    except OSError as error:
        with suppress(OSError):  # not even an empty file could be created
            file.unlink()
        raise click.ClickException(f"{file} can't be written: {error.strerror}.") from None
    say(f"Wrote {file}. Edit it, then run `plughost check --config {file}`.")


def _is_wanted(key: str, keys: Collection[str]) -> bool:
    return not keys or any(key == each or key.startswith(f"{each.rstrip('.')}.") for each in keys)


def _hides_settings(entry: PluginRecord, keys: Collection[str]) -> bool:
    """Return whether a plugin that failed has, or may have, wanted settings that can't be shown."""
    table, may_have_some = f"plugins.{entry.name}", not entry.hooks or "register_settings" in entry.hooks
    is_wanted = _is_wanted(table, keys) or any(_is_wanted(key, [table]) for key in keys)
    return entry.failure is not None and entry.settings is None and may_have_some and is_wanted


def _explain(name: str, generation: Generation, as_json: bool) -> None:
    """Print whether a plugin, or all plugins of a distribution, serve, and why. Exit with code 1 if not."""
    from plughost._cli.plugin_commands import command_failures  # noqa: PLC0415 - it imports much, and --why is rare

    registry = generation.registry
    keys = (canonicalize_name(name), canonicalize_name(f"{HOST}-{name}"))
    entries = [each for each in registry if each.name == name]
    entries = entries or [each for each in registry if canonicalize_name(each.installed.distribution) in keys]
    serves = bool(entries) and all(each.state is State.ACTIVE for each in entries)
    lines = [line for each in entries for line in _describe_entry(each)] or list(_describe_other(name, keys, registry))
    for _, failure in command_failures(registry, entries):
        lines += ["Its commands can't be called.", *_describe_failure(failure)]
    if as_json:
        print_json({"name": name, "serves": serves, "lines": lines})
    else:
        say("\n".join(lines))
    if not serves:
        raise SystemExit(EXIT_PROBLEMS)


def _plugin_as_plain(entry: PluginRecord) -> dict[str, Any]:
    failure = entry.failure
    return {
        "name": entry.name,
        "distribution": entry.installed.distribution,
        "version": entry.installed.version,
        "state": entry.state.value,
        "reason": None if failure is None else str(failure),
        "stage": None if failure is None else failure.stage,
        "hooks": list(entry.hooks),
        "sites": entry.sites,
        "prefixes": [group.prefix for group in entry.declared.groups],
        "requires": list(entry.installed.requires),
    }


def _plugin_row(entry: PluginRecord) -> tuple[str | Text, ...]:
    found, hooks = entry.installed, [hook.removeprefix("register_") for hook in entry.hooks]
    state, sites = state_text(entry.state), " ".join(entry.sites)
    return entry.name, found.distribution, found.version, state, sites, " ".join(hooks)


def _routes(generation: Generation) -> Iterator[dict[str, Any]]:
    for site, assembly in generation.sites.items():
        for mounted in assembly.groups:
            for route in mounted.group.routes:
                yield {
                    "site": site,
                    "path": mounted.group.prefix + route.path,
                    "plugin": mounted.fallback.plugin,
                    "versions": list(mounted.group.versions),
                    "operations": {method: each.summary for method, each in route.operations.items()},
                }


def _route_rows(route: dict[str, Any], *, by_method: bool) -> Iterator[tuple[str, ...]]:
    """Yield a row for each method of a route, or one for all of them."""
    for method, summary in route["operations"].items() if by_method else [(" ".join(route["operations"]), "")]:
        yield route["site"], method, route["path"], route["plugin"], " ".join(route["versions"]), summary


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{json.dumps(key, ensure_ascii=False)} = {_toml(each)}' for key, each in value.items())}}}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)


def _settings_lines(values: Iterable[Value]) -> Iterator[str]:
    """Yield the lines of a TOML table for each prefix. The host's keys outside of tables come first."""
    tables: dict[str, list[Value]] = {}
    for value in values:
        tables.setdefault(value.key.rpartition(".")[0], []).append(value)
    for table, rows in tables.items():
        if table:
            yield f"\n[{table}]"
        for value in rows:
            yield from textwrap.wrap(value.description, 110, initial_indent="# ", subsequent_indent="# ")
            yield f"#{value.key.rpartition('.')[2]} = {_default_or_example(value)}"


def _default_or_example(value: Value) -> str:
    if value.default is not None and value.default != MASK:
        return _toml(value.default)
    return " # no default: write a value" if value.example is None else f"{_toml(value.example)}  # an example"


def _describe_entry(entry: PluginRecord) -> Iterator[str]:
    label = entry.installed.label
    if entry.failure is not None:
        yield f"{label} is {entry.state}."
        yield from _describe_failure(entry.failure)
    elif entry.state is State.DISABLED:
        yield f"{label} is disabled by the setting disabled or by --without. Enable it: plughost enable {entry.name}"
    else:
        mounted = [f"{group.prefix} on the site {entry.site_of(group)}" for group in entry.declared.groups]
        yield f"{label} is active, and {'serves ' + ', '.join(mounted) if mounted else 'mounts no route'}."


def _describe_failure(failure: Failure) -> Iterator[str]:
    yield f"  {failure}"
    if failure.trace:
        yield f"\n{own_frames(failure.trace)}"


def _describe_distribution(found: InstalledDistribution) -> Iterator[str]:
    label = f"{found.name} {found.version}"
    if found.damage is not None:
        yield f"{label} is installed, but damaged: {found.damage}. Install it again."
        return
    wrong = list(misplaced_entry_points([found]))
    groups = sorted(found.entry_points.groups)
    if wrong:
        yield from (f"{each}." for each in wrong)
    elif groups:
        in_groups = f"it has entry points in {', '.join(groups)}, but none in {ENTRY_POINT_GROUP}"
        yield f"{label} is installed, but is not a plugin: {in_groups}."
    else:
        yield f"{label} is installed, but is not a plugin: it has no entry points."
    yield _HOW_TO_DECLARE


def _describe_other(name: str, keys: Collection[str], registry: Registry) -> Iterator[str]:
    environment = Environment()
    found = next((environment.installed[key] for key in keys if key in environment.installed), None)
    if found is not None:
        yield from _describe_distribution(found)
        return
    leftovers = find_distributions(leftover=True)
    left = [each for each in leftovers if each.name and canonicalize_name(each.name) in keys]
    if left:
        yield (
            f"{left[0].name} {left[0].version} is not installed any more: an installer was killed while it removed "
            f"or replaced it, and left {left[0].locate_file(left[0].folder)}. Install it again."
        )
        return
    known = [*(each.name for each in registry), *environment.installed]
    close = get_close_matches(name, known, n=1)
    yield f"{name} is not installed in {sys.prefix}{f'; did you mean {close[0]}?' if close else '.'}"
