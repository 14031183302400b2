"""The plugin. Its commands are also commands of the host, such as `plughost install`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost import hookimpl
from plughost_packages.settings import Settings

if TYPE_CHECKING:
    import click


@hookimpl
def register_settings() -> type[Settings]:
    """Return the model of `[plugins.packages]`."""
    return Settings


@hookimpl
def register_commands() -> list[click.Command]:
    """Return `plughost install`, `uninstall`, `lock` and `bundle`."""
    from plughost_packages.install_command import install  # noqa: PLC0415 - only needed to run commands
    from plughost_packages.lock_commands import bundle_command, lock_command  # noqa: PLC0415 - as above
    from plughost_packages.uninstall_command import uninstall  # noqa: PLC0415 - as above

    return [bundle_command, install, lock_command, uninstall]
