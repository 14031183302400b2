"""Discover: look at what is installed now, in place since the start, too; with `--dev` also at single files."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from plughost._plugins.allowed import only_allowed
from plughost._plugins.environment import Environment
from plughost._plugins.in_place import PathFiles
from plughost._plugins.single_files import single_files
from plughost._runtime.sites import exposed_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from plughost._settings.sources import Settings


class Discovery:
    """Looks at what is installed, again and again."""

    def __init__(self, distributions: Callable[[], Iterable[metadata.Distribution]] | None) -> None:
        """Look at what this returns each time, or at all on `sys.path`."""
        self._distributions = distributions or metadata.distributions
        self._path_files = PathFiles() if distributions is None else None

    def look(self, settings: Settings, *, dev: bool) -> Environment:
        """Return what is installed now."""
        if self._path_files is not None:
            self._path_files.forget_removed()
        folder = plugins_dir(settings, dev=dev)
        environment = Environment([*self._distributions(), *(single_files(folder) if folder is not None else ())])
        environment.warnings += _without_files(settings, dev=dev)
        if self._path_files is not None:
            usable = [each for each in only_allowed(environment.plugins, settings.host.allowed) if not each.problem]
            self._path_files.read_new(environment, {key for each in usable for key in each.closure})
        return environment


def plugins_dir(settings: Settings, *, dev: bool) -> Path | None:
    """Return the folder whose files are plugins. None where nobody named one, or others than a developer come by."""
    folder = settings.path(settings.host.plugins_dir)
    return folder if dev and not exposed_addresses(settings) else None


def _without_files(settings: Settings, *, dev: bool) -> tuple[str, ...]:
    """Return why a developer's single files are no plugins, as a sentence, if so."""
    folder = settings.path(settings.host.plugins_dir)
    if not dev or folder is None:
        return ()
    if not folder.is_dir():
        return (f"plugins_dir: there is no folder {folder}",)
    exposed = " and ".join(exposed_addresses(settings))
    return (f"plugins_dir: its files are not served while others can reach {exposed}",) if exposed else ()
