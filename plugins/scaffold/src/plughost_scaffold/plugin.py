"""The plugin: its commands stand beside the host's own, as `plughost new` and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost import hookimpl
from plughost_scaffold.migrate_command import migrate
from plughost_scaffold.new_command import new

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands() -> list[click.Command]:
    """Return `plughost new` and `plughost migrate`."""
    return [migrate, new]
