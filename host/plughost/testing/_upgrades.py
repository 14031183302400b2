"""Part of the conformance suite: a plugin takes over from an earlier version, with its data.

The upgrade runs in a separate process, since the tests' process may have imported the installed version.
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
from plughost.testing._operations import OperationCall, Suite, operation_calls

_TIMEOUT: Final = 300


class UpgradeTests(Suite):
    """A test of an upgrade."""

    earlier: ClassVar[Path | None]

    @pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
    def test_it_takes_over_from_an_earlier_version(self, dialect: str, tmp_path: Path) -> None:
        """A host with the earlier version and its rows reloads to this version, and serves those rows."""
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
                timeout=_TIMEOUT,
                check=False,
            )
        assert done.returncode == 0, f"{self.plugin} can't take over from {self.earlier.name}: {done.stderr}"


def upgrade(folder: Path, plugin: str, earlier: str, settings: Mapping[str, Any]) -> str:
    """Return the fault of an upgrade from a wheel to the installed version. Empty if there is none."""
    unpacked = str(folder / "earlier")
    with zipfile.ZipFile(earlier) as wheel:
        wheel.extractall(unpacked)
    sys.path.insert(0, unpacked)
    options: dict[str, Any] = {"settings": settings, "strict": True, "data_dir": folder / "data"}
    with running_host([plugin], **options) as host:
        for call in operation_calls(host, plugin):
            for body in call.operation.examples.values():
                _status(host, call, json=body)
        before = _read_statuses(host, plugin)
        sys.path.remove(unpacked)
        importlib.invalidate_caches()
        report = host.host.reload()
        if not report.ok:
            reasons = [*report.problems, *(reason for _, reason in (*report.failed, *report.blocked))]
            return f"the reload fails: {'; '.join(reasons)}"
        if fault := _regression(before, _read_statuses(host, plugin)):
            return f"after the reload {fault}"
    with running_host([plugin], **options) as host:
        fault = _regression(before, _read_statuses(host, plugin))
        return f"after a restart {fault}" if fault else ""


def _status(host: RunningHost, call: OperationCall, **sent: Any) -> int:
    with host.client(call.site) as client:
        return client.request(call.method, call.path, **sent).status_code


def _read_statuses(host: RunningHost, plugin: str) -> dict[str, int]:
    """Return the status of each operation that reads."""
    return {
        call.label: _status(host, call)
        for call in operation_calls(host, plugin)
        if call.method == "GET" and not call.streams_events
    }


def _regression(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Return which operation now fails, or no longer finds what it found. Empty if none does."""
    for label, status in now.items():
        if status >= 500 or (before.get(label, 0) < 300 <= status and label in before):
            return f"{label} answers {status}; before, it was {before.get(label, 'not there')}"
    return ""


def main() -> None:
    """Run the upgrade that standard input describes, in the folder that is the only argument."""
    sys.exit(upgrade(Path(sys.argv[1]), **json.load(sys.stdin)) or 0)
