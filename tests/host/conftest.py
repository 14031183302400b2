"""Packages of a test, and faulty plugins that the conformance suite has to detect."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.host.packages import plugin_entry, write_package
from tests.host.plugins import TIME_LIMIT

from plughost.testing import conformance


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Install a plugin into a folder on `sys.path`, and return its tests."""
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")

    def plant(
        name: str,
        source: str,
        settings: dict[str, Any] | None = None,
        *,
        version: str = "1.0",
        earlier: Path | None = None,
        prepare: Any = lambda host, client: None,
        beside: Any = None,
        **files: str,
    ) -> Any:
        module = name.replace("-", "_")
        package = {f"{module}/__init__.py": source, **{f"{module}/{path}": text for path, text in files.items()}}
        entry = plugin_entry(name, module)
        write_package(tmp_path / "site", name, package, version=version, entry_points=entry)
        importlib.invalidate_caches()
        return conformance(name, settings, earlier=earlier, prepare=prepare, beside=beside)()

    yield plant
    for each in [name for name in sys.modules if name.startswith("planted_")]:
        del sys.modules[each]


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Barrier]:
    """A barrier for two: once a plugin waits there alone, `TIME_LIMIT` is over, which no other call comes near."""
    barrier, passed = threading.Barrier(2), [0.0]

    def clock() -> float:
        if barrier.n_waiting and len(passed) < 3:  # the first look may be for the deadline itself
            passed.append(TIME_LIMIT)
        return monotonic() + sum(passed)

    monkeypatch.setattr("plughost._api.bounded.monotonic", clock)
    yield barrier
    barrier.abort()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on `sys.path` for a test's packages, whose modules are removed afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
