"""Watch: reload a host in development when what it is made of was saved.

It looks at times and sizes four times a second, as the reload itself does. That takes a few milliseconds, works on
every file system, and needs no library.
"""

from __future__ import annotations

import site
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plughost._plugins.snapshots import file_states
from plughost._runtime.discovering import plugins_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plughost._api.reload_report import ReloadReport
    from plughost._runtime.host import Host

_EVERY: Final = 0.25
"""Seconds between two looks."""


class Watcher:
    """Watches the sources of what is installed in place, the folder of single files, the settings and site-packages."""

    def __init__(self, host: Host, tell: Callable[[ReloadReport], None]) -> None:
        """Watch for a host; tell of each reload."""
        self._host = host
        self._tell = tell
        self._ended = threading.Event()
        self._seen = dict(self._look())
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer. A reload that was begun is not waited for."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY):
            seen = dict(self._look())
            if seen == self._seen:
                continue
            while not self._ended.wait(_EVERY / 2) and (later := dict(self._look())) != seen:
                seen = later  # an installer or an editor is still writing
            self._seen = seen
            report = self._host.reload(origin={"where": "watcher"})
            self._tell(report)
            now = dict(self._look())  # what is new is watched from now on, the rest since before the reload
            self._seen = now | {path: state for path, state in seen.items() if path in now}

    def _look(self) -> Iterator[tuple[Path, tuple[str, ...]]]:
        for root in self._roots():
            yield root, tuple(file_states(str(root)))
        file = self._host.settings.file
        for path in (*map(Path, {*site.getsitepackages(), site.getusersitepackages()} & set(sys.path)), file):
            if path is not None:
                with suppress(OSError):
                    yield path, (str(path.stat().st_mtime_ns),)

    def _roots(self) -> set[Path]:
        roots = {Path(each.root) for each in list(self._host.imported.values()) if each.root is not None}
        folder = plugins_dir(self._host.settings, dev=self._host.dev)
        return roots | ({folder} if folder is not None else set())
