"""Part of the conformance suite: a plugin takes over from an earlier version, with its data."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from plughost.testing._databases import store_settings
from plughost.testing._hosts import RunningHost, running_host
from plughost.testing._operations import OperationCall, Suite, operation_calls


class UpgradeTests(Suite):
    """A test of an upgrade."""

    earlier: ClassVar[Path | None]

    @pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
    def test_it_takes_over_from_an_earlier_version(self, dialect: str, tmp_path: Path) -> None:
        """A host with the earlier version and its rows reloads to this version, and serves those rows."""
        if self.earlier is None:
            pytest.skip("no upgrade is tested: conformance(earlier=...) takes the wheel of a published version")
        with zipfile.ZipFile(self.earlier) as wheel:
            wheel.extractall(tmp_path / "earlier")
        with store_settings(dialect) as stores, self.fresh_modules():
            sys.path.insert(0, str(tmp_path / "earlier"))
            options = {"settings": {**self.settings, **stores}, "strict": True, "data_dir": tmp_path / "data"}
            fault = self._upgrade(str(tmp_path / "earlier"), options)
        assert not fault, f"{self.plugin} can't take over from {self.earlier.name}: {fault}"

    def _upgrade(self, earlier: str, options: dict[str, Any]) -> str:
        """Return the fault of an upgrade from a folder on `sys.path` to the installed version, or an empty text."""
        with running_host([self.plugin], **options) as host:
            for call in operation_calls(host, self.plugin):
                for body in call.operation.examples.values():
                    _status(host, call, json=body)
            before = _read_statuses(host, self.plugin)
            sys.path.remove(earlier)
            report = host.host.reload()
            if not report.ok:
                reasons = [*report.problems, *(reason for _, reason in (*report.failed, *report.blocked))]
                return f"the reload fails: {'; '.join(reasons)}"
            if fault := _regression(before, _read_statuses(host, self.plugin)):
                return f"after the reload {fault}"
        with running_host([self.plugin], **options) as host:
            fault = _regression(before, _read_statuses(host, self.plugin))
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
