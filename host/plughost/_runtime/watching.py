"""Watch: reload a host in development when what it is made of was saved.

It looks at times and sizes four times a second, as the reload itself does. That takes a few milliseconds, works on
every file system, and needs no library.
"""

from __future__ import annotations

import site
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost._logging import suppress_events
from plughost._plugins.snapshots import file_states
from plughost._runtime.generation import plugins_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.snapshots import Snapshot
    from plughost._runtime.host import Host

    _States = tuple[str, ...]

_EVERY: Final = 0.25
"""Seconds between two looks."""


class Watcher:
    """Watches the sources of what is installed in place, the folder of single files, the settings and site-packages.

    What it sees is compared with what was there when the last load began: a save during a load leads to another one.
    """

    def __init__(self, host: Host, tell: Callable[[ReloadReport], None]) -> None:
        """Prepare to watch for a host that has not started yet; tell of each reload."""
        self._host = host
        self._tell = tell
        self._ended = threading.Event()
        self._loaded = self._look()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        """Watch from now on: the host has started."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer. A reload that was begun is not waited for."""
        self._ended.set()

    def _watch(self) -> None:
        self._note(self._loaded)
        while not self._ended.wait(_EVERY):
            seen = self._look()
            if seen == self._loaded:
                continue
            while not self._ended.wait(_EVERY / 2) and (later := self._look()) != seen:
                seen = later  # an installer or an editor is still writing
            known = self._host.view.warnings
            with suppress_events("reload", "plugin does not serve", "hook failed"):
                report = self._host.reload(origin={"where": "watcher"})
            for warning in self._host.view.warnings:
                if warning not in known:
                    self._host.logger.warning("announcement", text=f"Warning: {warning}")
            self._tell(report)
            self._note(seen)

    def _note(self, seen: Mapping[Path, _States]) -> None:
        """Note what the last load began with: what was seen before it, and the sources of what it found first."""
        found = {Path(root): each.sources for root, each in self._projects().items()}
        self._loaded = {path: seen.get(path, states) for path, states in (found | self._look_around()).items()}

    def _look(self) -> dict[Path, _States]:
        projects = self._projects().items()
        return {Path(root): tuple(file_states(root, each.foreign)) for root, each in projects} | self._look_around()

    def _look_around(self) -> dict[Path, _States]:
        """Look at all but the projects."""
        seen = {}
        folder = plugins_dir(self._host.settings, dev=self._host.dev)
        if folder is not None:
            seen[folder] = tuple(file_states(str(folder)))
        for site_packages in map(Path, {*site.getsitepackages(), site.getusersitepackages()} & set(sys.path)):
            # Installers write metadata last: into a folder that may be there already.
            records = (path / "RECORD" for path in site_packages.glob("*.dist-info"))
            seen[site_packages] = tuple(sorted(map(_state, (site_packages, *records))))
        file = self._host.settings.file
        if file is not None:
            seen[file] = (_state(file),)
        return seen

    def _projects(self) -> dict[str, Snapshot]:
        """Return what the last load found installed in place, by project folder."""
        found = list(self._host.attempted.values())
        return {each.root: each for each in found if each.root is not None}


def _state(path: Path) -> str:
    try:
        return f"{path} {path.stat().st_mtime_ns}"
    except OSError:
        return f"{path} is not there"
