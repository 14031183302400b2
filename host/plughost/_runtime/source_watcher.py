"""Watch: reload a host in development when a source file was saved.

It compares the times and sizes of files four times a second. That takes a few milliseconds, works on every file system,
and needs no library.
"""

from __future__ import annotations

import site
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost._logging import suppress_events
from plughost._plugins.distributions import file_states
from plughost._servers.connections import require_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plughost._api.reload_report import ReloadReport
    from plughost._plugins.distributions import Snapshot
    from plughost._runtime.host import Host

    _States = tuple[str, ...]

_INTERVAL: Final = 0.25
"""Seconds between two scans."""
_DESCRIPTORS: Final = 2
"""File descriptors that a scan needs: without one, some folders would seem to be empty."""


class SourceWatcher:
    """Watches the sources of editable installs, the folder of single files, the settings file and site-packages.

    The baseline is the state when the last load began, so a save during a load causes another one.
    """

    def __init__(self, host: Host, report: Callable[[ReloadReport], None]) -> None:
        """Prepare to watch for a host that has not started yet; pass the report of each reload to `report`."""
        self._host = host
        self._report = report
        self._stopped = threading.Event()
        self._baseline = self._scan()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def __enter__(self) -> None:
        """Watch until the block ends."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Stop watching, without waiting for a running reload."""
        self._stopped.set()

    def _watch(self) -> None:
        with suppress(OSError):
            self._set_baseline(self._baseline)
        while not self._stopped.wait(_INTERVAL):
            with suppress(OSError):  # without a descriptor nothing can be read: the next scan may get one
                require_descriptors(_DESCRIPTORS)
                self._reload_changed()

    def _reload_changed(self) -> None:
        """Reload the host if anything changed since the last load."""
        states = self._scan()
        if states == self._baseline:
            return
        while not self._stopped.wait(_INTERVAL / 2) and (current := self._scan()) != states:
            states = current  # an installer or an editor is still writing
        known_warnings = self._host.view.warnings
        with suppress_events("reload", "plugin does not serve", "hook failed"):
            report = self._host.reload(origin={"where": "watcher"})
        self._set_baseline(states)  # before the report, whose output may fail: the same change is loaded once
        for warning in self._host.view.warnings:
            if warning not in known_warnings:
                self._host.logger.warning("announcement", text=f"Warning: {warning}")
        self._report(report)

    def _set_baseline(self, scanned: Mapping[Path, _States]) -> None:
        """Set the baseline of the last load: what was scanned before it, and the projects that only the load found."""
        loaded = {Path(root): each.sources for root, each in self._projects().items()}
        self._baseline = {path: scanned.get(path, states) for path, states in (loaded | self._scan_others()).items()}

    def _scan(self) -> dict[Path, _States]:
        projects = self._projects().items()
        return {Path(root): tuple(file_states(root, each.foreign)) for root, each in projects} | self._scan_others()

    def _scan_others(self) -> dict[Path, _States]:
        states = {}
        folder = self._host.plugins_dir
        if folder is not None:
            states[folder] = tuple(file_states(str(folder)))
        for site_packages in map(Path, {*site.getsitepackages(), site.getusersitepackages()} & set(sys.path)):
            # Installers write RECORD last, into a folder that may have existed before.
            records = (path / "RECORD" for path in site_packages.glob("*.dist-info"))
            states[site_packages] = tuple(sorted(map(_state, (site_packages, *records))))
        file = self._host.settings.file
        if file is not None:
            states[file] = (_state(file),)
        return states

    def _projects(self) -> dict[str, Snapshot]:
        """Return the editable installs that the last load found, by project folder."""
        loaded = list(self._host.attempted.values())
        return {each.root: each for each in loaded if each.root is not None}


def _state(path: Path) -> str:
    try:
        return f"{path} {path.stat().st_mtime_ns}"
    except OSError:
        return f"{path} is not there"
