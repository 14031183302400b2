"""`plughost migrate`: number a plugin's migrations, and test them from every earlier version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from packaging.utils import canonicalize_name

from plughost import Environment

if TYPE_CHECKING:
    from plughost import PluginContext, PluginView, Store

_DIALECTS: Final = ("sqlite", "postgresql")
_NUMBERED: Final = re.compile(r"(\d{4})_.*\.(?:sql|py)")
# An unwritten migration must fail. Otherwise a reload meanwhile would record it as applied.
_SQL_TEMPLATE: Final = """-- {what}
SELECT write_this_step;  -- replace this line: it fails, so that no host takes the step for done
"""
_PYTHON_TEMPLATE: Final = '''"""{what}."""

from plughost.stores import Session


def migrate(session: Session) -> None:
    """Change the data; `session.dialect` is sqlite or postgresql. Never changes once it is published."""
    raise NotImplementedError("write this step")
'''


@click.group("migrate")
def migrate() -> None:
    """Create and test migrations of a plugin's store."""


@migrate.command("new")
@click.argument("plugin")
@click.argument("what")
@click.option("--store", help="Store, if the plugin has several.")
@click.option("--python", "in_python", is_flag=True, help="Create a Python function, for data that SQL can't change.")
@click.pass_obj
def new_migration(context: PluginContext[Any], *, plugin: str, what: str, store: str | None, in_python: bool) -> None:
    """Create the next migration of PLUGIN, for SQLite and PostgreSQL.

    PLUGIN must be installed in place (pip install -e). WHAT is a short description, which becomes part of the file
    names.
    """
    found = _find_plugin(context, plugin)
    folder = _migrations_folder(found, _choose_store(found, store))
    numbers = [int(match[1]) for file in folder.rglob("*") if (match := _NUMBERED.fullmatch(file.name))]
    words = re.sub(r"[^a-z0-9]+", "_", what.lower()).strip("_")
    if not words:
        raise click.UsageError(f"{what!r} has no letter or digit that could name a file.")
    stem = f"{max(numbers, default=0) + 1:04}_{words}"
    files = [folder / f"{stem}.py"] if in_python else [folder / each / f"{stem}.sql" for each in _DIALECTS]
    content = (_PYTHON_TEMPLATE if in_python else _SQL_TEMPLATE).format(what=what.rstrip("."))
    for file in files:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"{file} can't be written: {error.strerror}.") from error
        click.echo(f"Wrote {file}")


@migrate.command("test")
@click.argument("plugins", nargs=-1)
@click.pass_obj
def test_migrations(context: PluginContext[Any], plugins: tuple[str, ...]) -> None:
    """Test all migrations on SQLite and PostgreSQL, from an empty store and from each earlier version with rows.

    By default, the migrations of all installed plugins are tested. Each run has a database of its own. Exit code 1 if
    one fails.
    """
    from plughost_scaffold.migration_check import check_migrations  # noqa: PLC0415 - imports pytest, which serving doesn't need

    views = [_find_plugin(context, name) for name in plugins] or list(context.host.preview().plugins)
    stores = [store for each in views for store in each.declared.stores]
    if not stores:
        raise click.ClickException("None of these plugins has a store.")
    failed = False
    for store in stores:
        for dialect in _DIALECTS:
            for result in check_migrations(store, dialect):
                click.echo(result.text)
                failed = failed or result.failed
    if failed:
        raise SystemExit(1)


def _find_plugin(context: PluginContext[Any], name: str) -> PluginView:
    """Return an installed plugin that has a store."""
    found = next((each for each in context.host.preview().plugins if each.name == name), None)
    if found is None:
        raise click.ClickException(f"No plugin {name} is installed. Install it in place: pip install -e FOLDER")
    if not found.declared.stores:
        raise click.ClickException(f"{name} declares no store{f': {found.reason}' if found.reason else ''}.")
    return found


def _choose_store(plugin: PluginView, name: str | None) -> Store[Any]:
    # A store that the host makes for the plugin, for idempotent responses, has no folder to write to.
    in_folders = [store for store in plugin.declared.stores if isinstance(store.migrations, Path)]
    stores = {store.name: store for store in in_folders or plugin.declared.stores}
    if name is None and len(stores) > 1:
        raise click.UsageError(f"{plugin.name} has several stores; choose one by --store: {', '.join(stores)}.")
    if name is not None and name not in stores:
        raise click.UsageError(f"{plugin.name} has no store {name}; it has {', '.join(stores)}.")
    return stores[name or next(iter(stores))]


def _migrations_folder(plugin: PluginView, store: Store[Any]) -> Path:
    """Return the folder of a store's migrations; the plugin must be installed in place."""
    distribution = Environment().installed[canonicalize_name(plugin.distribution)]
    if not distribution.is_editable or not isinstance(store.migrations, Path):
        advice = "Install it in place, from the folder that you edit: pip install -e FOLDER"
        raise click.ClickException(f"{plugin.distribution} {plugin.version} is not installed in place. {advice}")
    return store.migrations
