"""`plughost enable` and `plughost disable`: edit the settings file, and reload the running host."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import click

from plughost._api.errors import CommandError, NotRunning
from plughost._cli.completing import plugin_names
from plughost._cli.options import EXIT_PROBLEMS, CommandT, config_option, console, json_option, print_json, say
from plughost._plugins.environment import Environment
from plughost._runtime.audit import CommandAudit
from plughost._runtime.control import reload_running
from plughost._settings.editing import edit_setting, editing
from plughost._settings.errors import PLUGINS_LISTER, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.environment import InstalledPlugin
    from plughost._settings.editing import Edit
    from plughost._settings.sources import Settings


def _switch_options(command: CommandT) -> CommandT:
    for option in (
        config_option,
        json_option,
        click.option("--keep", is_flag=True, help="Keep the change even if the running host refuses it."),
        click.option("--no-reload", is_flag=True, help="Don't reload the running host."),
        click.option("--dry-run", is_flag=True, help="Only show what would be done."),
        click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=plugin_names),
    ):
        command = option(command)
    return command


@click.command()
@_switch_options
def disable(settings: Settings, names: tuple[str, ...], **options: bool) -> None:
    """Disable plugins: don't import their code, but keep their data.

    The command adds the plugins to the list `disabled` in the settings file, and reloads the running host. Plugins that
    require a disabled one are blocked.
    """
    with editing(settings, partial(say, err=True)) as now:
        found, before = _installed(names), now.host.disabled
        required = sorted(set(names) & set(now.host.required))
        if required:
            raise click.ClickException(f"The setting required names {', '.join(required)}; remove it there first.")
        disabled = list(dict.fromkeys([*before, *names]))
        lines = [f"{name} is already disabled." for name in names if name in before]
        lines += [f"Disabling {name}." for name in names if name not in before]
        blocked = {
            each.name: [other for other in each.requires if other in disabled]
            for each in found
            if each.name not in disabled and {*each.requires} & {*names}
        }
        lines += [f"{name} requires {' and '.join(needed)}, and is blocked." for name, needed in blocked.items()]
        _switch(now, "disable", disabled, lines, blocked, **options)


@click.command()
@_switch_options
def enable(settings: Settings, names: tuple[str, ...], **options: bool) -> None:
    """Enable disabled plugins.

    The command removes the plugins from the list `disabled` in the settings file, and reloads the running host.
    """
    with editing(settings, partial(say, err=True)) as now:
        found, before = _installed(names, or_among=now.host.disabled), now.host.disabled
        disabled = [name for name in before if name not in names]
        lines = [f"{name} is not disabled." for name in names if name not in before]
        lines += [f"Enabling {name}." for name in names if name in before]
        lines += [
            f"{each.name} stays blocked: {other} is disabled."
            for each in found
            for other in each.requires
            if each.name in names and other in disabled
        ]
        _switch(now, "enable", disabled, lines, (), **options)


def _reload(settings: Settings, edit: Edit | None, accept: Collection[str]) -> ReloadReport | None:
    """Reload the running host, if there is one. If it fails to answer, undo the edit."""
    try:
        return reload_running(settings.data_dir, accept)
    except NotRunning:
        return None
    except CommandError:
        if edit is not None:
            edit.undo()
        raise


def _switch(
    settings: Settings,
    verb: str,
    disabled: list[str],
    lines: list[str],
    accept: Collection[str],
    *,
    dry_run: bool,
    no_reload: bool,
    keep: bool,
    as_json: bool,
) -> None:
    if not as_json:
        for line in lines:
            say(line)
    summary = {"disabled": disabled, "blocked": sorted(accept), "dry_run": dry_run}
    if dry_run:
        if as_json:
            print_json({"ok": True, **summary, "undone": False, "reload": None})
        else:
            say("Nothing was changed (--dry-run).")
        return
    edit, report, undone = None, None, False
    target = sorted({*disabled} ^ {*settings.host.disabled})
    if target:
        with CommandAudit(settings).recording(verb, target=target) as event:
            edit = edit_setting(settings, {}, "disabled", disabled)
            edit.apply()
            report = None if no_reload else _reload(settings, edit, accept)
            undone = report is not None and bool(report.problems) and not keep
            if undone:
                edit.undo()
                event["outcome"] = "undone"
    elif not no_reload:  # a command that was killed, or did not reload, may have made the change
        report = _reload(settings, None, accept)
    failures = [*report.failed, *report.blocked] if report is not None else []
    failed = [label for label, _ in failures if label.split(" ")[0] not in accept]
    ok = not undone and (report is None or (report.swapped and not failed and not report.restart_needed))
    if as_json:
        file = {"file": str(edit.file)} if edit is not None else {}
        print_json({"ok": ok, **summary, **file, "undone": undone, "reload": report and report.as_plain()})
    else:
        _print_report(report, edit.file if edit is not None else None, undone=undone)
    if not ok:
        raise SystemExit(EXIT_PROBLEMS)


def _print_report(report: ReloadReport | None, file: Path | None, *, undone: bool) -> None:
    if file is not None and not undone:
        say(f"Wrote {file}.")
    if report is None:
        change = "No running host was reloaded. The change takes effect at the next reload or start."
        say(change if file is not None else "Nothing to change.")
        return
    console().print(report)
    if report.restart_needed:
        say("Restart the host to apply the change: plughost restart")
    if undone:
        refusal = f"The running host refused the change, so {file} was restored. To keep the change, use --keep."
        click.secho(refusal, err=True, fg="red", bold=True)


def _installed(names: Collection[str], or_among: Collection[str] = ()) -> tuple[InstalledPlugin, ...]:
    """Return the installed plugins. Refuse a name that is neither among them nor among the others."""
    found = Environment().plugins
    known = {*(each.name for each in found), *or_among}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, sorted(known), PLUGINS_LISTER)
            raise click.ClickException(f"No plugin named {name} is installed{hint}")
    return found
