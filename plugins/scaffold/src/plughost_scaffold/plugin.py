"""The plugin: it adds `plughost new` and `plughost migrate` beside the host's own commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands() -> list[click.Command]:
    """Return `plughost new` and `plughost migrate`."""
    from plughost_scaffold.migrate_command import migrate  # noqa: PLC0415 - a host that serves runs no commands
    from plughost_scaffold.new_command import new  # noqa: PLC0415 - as above

    return [migrate, new]
