"""`plughost new`: write the skeleton of a plugin."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from plughost_scaffold.writing import FEATURES, Scaffold, write

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_MAX_LENGTH: Final = 30
_RELOAD_HINT: Final = (
    "\nTo load it into a running host, run `plughost reload`\nin the folder where that host was started."
)


def _feature_options(command: FunctionT) -> FunctionT:
    """Add an option for each feature."""
    for name, phrase in reversed(FEATURES.items()):
        command = click.option(f"--{name}", is_flag=True, help=f"The plugin {phrase}.")(command)
    return command


@click.command("new")
@click.argument("name", required=False)
@_feature_options
@click.option("--all", "everything", is_flag=True, help="All of the above.")
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), help="Create a plugin in this single file.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where to create the folder plughost-NAME; default: the current folder.",
)
@click.pass_context
def new(
    ctx: click.Context, /, *, name: str | None, file: Path | None, into: Path, everything: bool, **chosen: bool
) -> None:
    """Create the plugin NAME, a complete distribution with tests, or a single-file plugin.

    Without options for features, the command asks on a terminal. Otherwise the plugin has a route.
    """
    features = [each for each in FEATURES if everything or chosen[each]]
    if file is not None:
        if name is not None or features:
            raise click.UsageError("A single-file plugin has the name of its file and a route: omit NAME and features.")
        _write_file(ctx, file)
    elif name is None:
        raise click.UsageError("Name the plugin: plughost new NAME, or plughost new --file hello.py.")
    else:
        _check_name(ctx, name)
        _write_distribution(Scaffold(name, features or _ask_features()), into)


def _write_distribution(plugin: Scaffold, into: Path) -> None:
    folder = into / f"plughost-{plugin.name}"
    files = list(plugin.files())
    _write(files, folder)
    click.echo(f"Wrote {folder} ({len(files)} files). Next:\n")
    lines = [f"cd {folder}", "pip install -e '.[dev]'", "pytest", "plughost serve --dev --reload"]
    if "route" in plugin.features:
        path = plugin.name if "store" in plugin.features else f"{plugin.name}/Ada"
        lines.append(f"curl http://localhost:8080/{path}")
    for line in lines:
        click.echo(f"  {line}")
    click.echo(_RELOAD_HINT)


def _write_file(ctx: click.Context, file: Path) -> None:
    name = file.stem.replace("_", "-")
    if file.suffix != ".py":
        raise click.UsageError(f"{file} is not a Python file: its name must end with .py.")
    _check_name(ctx, name)
    _write([(file.name, Scaffold(name, ()).single_file())], file.parent)
    click.echo(f'Wrote {file}. With plugins_dir = "{file.parent.as_posix()}" in plughost.toml, this serves it:\n')
    click.echo(f"  plughost serve --dev --reload\n  curl http://localhost:8080/{name}/Ada\n{_RELOAD_HINT}")


def _write(files: list[tuple[str, str]], folder: Path) -> None:
    try:
        write(files, folder)
    except FileExistsError as error:
        raise click.ClickException(f"Nothing was written: {error}.") from error
    except OSError as error:
        raise click.ClickException(f"Not all files could be written to {folder}: {error.strerror}.") from error


def _check_name(ctx: click.Context, name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        rule = f"use lower-case words joined by hyphens, at most {_MAX_LENGTH} characters in all"
        raise click.UsageError(f"{name!r} is not a valid plugin name: {rule}.")
    root = ctx.find_root()
    if isinstance(root.command, click.Group) and root.command.get_command(root, name) is not None:
        raise click.UsageError(f"A new plugin can't be called {name}: a command or an installed plugin has this name.")


def _ask_features() -> list[str]:
    """Ask the person at the terminal for the plugin's features; without a terminal, return a route."""
    if not sys.stdin.isatty():
        return ["route"]
    return [
        name for name, phrase in FEATURES.items() if click.confirm(f"The plugin {phrase}?", default=name == "route")
    ]
