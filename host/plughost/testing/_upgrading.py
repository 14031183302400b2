"""Part of the conformance suite: a plugin takes over from an earlier version, with what that one has kept.

It is done in a process of its own, since the installed version may be imported in the one of the tests.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess  # nosec B404 - of this Python alone
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from plughost.testing._databases import store_settings
from plughost.testing._hosts import RunningHost, running_host
from plughost.testing._operations import Called, Suite, calls_of

_PATIENCE: Final = 300


class Upgrading(Suite):
    """A test of an upgrade."""

    earlier: ClassVar[Path | None]

    @pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
    def test_it_takes_over_from_an_earlier_version(self, dialect: str, tmp_path: Path) -> None:
        """A host that serves the earlier version, and has rows of it, reloads to this one and serves them."""
        if self.earlier is None:
            pytest.skip("no upgrade is tested: conformance(earlier=...) takes the wheel of a published version")
        with store_settings(dialect) as stores:
            given = {"settings": {**self.settings, **stores}, "plugin": self.plugin, "earlier": str(self.earlier)}
            done = subprocess.run(  # noqa: S603 - this module  # nosec B603
                [sys.executable, "-c", f"from {__name__} import main; main()", str(tmp_path)],
                input=json.dumps(given),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        assert done.returncode == 0, f"{self.plugin} can't take over from {self.earlier.name}: {done.stderr}"


def upgrade(folder: Path, plugin: str, earlier: str, settings: Mapping[str, Any]) -> str:
    """Return what goes wrong at an upgrade from a wheel to what is installed. Nothing where all is well."""
    unpacked = str(folder / "earlier")
    with zipfile.ZipFile(earlier) as wheel:
        wheel.extractall(unpacked)
    sys.path.insert(0, unpacked)
    options: dict[str, Any] = {"settings": settings, "strict": True, "data_dir": folder / "data"}
    with running_host([plugin], **options) as host:
        for called in calls_of(host, plugin):
            for body in called.operation.examples.values():
                _status(host, called, json=body)
        before = _read(host, plugin)
        sys.path.remove(unpacked)
        importlib.invalidate_caches()
        report = host.host.reload()
        if not report.ok:
            reasons = [*report.problems, *(reason for _, reason in (*report.failed, *report.blocked))]
            return f"the reload fails: {'; '.join(reasons)}"
        if fault := _lost(before, _read(host, plugin)):
            return f"after the reload {fault}"
    with running_host([plugin], **options) as host:
        fault = _lost(before, _read(host, plugin))
        return f"after a restart {fault}" if fault else ""


def _status(host: RunningHost, called: Called, **sent: Any) -> int:
    with host.client(called.site) as client:
        return client.request(called.method, called.path, **sent).status_code


def _read(host: RunningHost, plugin: str) -> dict[str, int]:
    """Return what each operation that reads answers."""
    return {
        called.label: _status(host, called)
        for called in calls_of(host, plugin)
        if called.method == "GET" and not called.streams_events
    }


def _lost(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Return which operation fails, or no longer finds what it found."""
    for label, status in now.items():
        if status >= 500 or (before.get(label, 0) < 300 <= status and label in before):
            return f"{label} answers {status}; before, it was {before.get(label, 'not there')}"
    return ""


def main() -> None:
    """Try the upgrade that standard input describes in the folder that is the only argument."""
    sys.exit(upgrade(Path(sys.argv[1]), **json.load(sys.stdin)) or 0)
