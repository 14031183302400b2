"""Shared by all suites of the host and the plugins: which distributions are installed, and which tests run."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from importlib.metadata import distributions, requires
from pathlib import Path
from typing import Final

import pytest

from plughost._servers.threads import set_stack_size

ALL: Final = bool(os.environ.get("PLUGHOST_TEST_ALL"))


def _installed() -> set[str]:
    names = {distribution.name for distribution in distributions()}
    return {name for name in names if name == "plughost" or name.startswith("plughost-")}


def _closure(name: str) -> set[str]:
    """Return the distribution and those of ours that it requires, directly or not."""
    found = {name}
    for requirement in requires(name) or ():
        required = re.match(r"[\w.-]+", requirement)
        if required and required[0].startswith("plughost") and "extra ==" not in requirement:
            found |= _closure(required[0])
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of tests that are one of many of their kind, and let no property fail for its time.

    A shell ignores SIGINT for what it starts in the background, and commands that tests start would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(ImportError):
        from hypothesis import HealthCheck, settings  # noqa: PLC0415 - not every environment has it

        settings.register_profile("plughost", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("plughost")
    set_stack_size()  # as a host does: tests call parts of it in threads of their own
    config.addinivalue_line("markers", "thorough: one of many of its kind, which only a complete run needs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what only a complete run needs, and say so."""
    if not ALL:
        for item in items:
            if item.get_closest_marker("thorough"):
                item.add_marker(pytest.mark.skip(reason="one of many of its kind; PLUGHOST_TEST_ALL=1 runs it too"))


def pytest_sessionstart() -> None:
    """Refuse to test a distribution beside others of ours that it doesn't require."""
    only = os.environ.get("PLUGHOST_TEST_ONLY")
    if only and _installed() != _closure(only):
        raise pytest.UsageError(f"{only} is to be tested with {sorted(_closure(only))}; found {sorted(_installed())}")


def pytest_report_header() -> list[str]:
    """Tell which of our distributions are installed."""
    return [f"installed: {', '.join(sorted(_installed()))}"]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let a distribution pass that has no test file yet."""
    files = [file for path in session.config.args for file in Path(path.split("::")[0]).rglob("test_*.py")]
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not files:
        session.exitstatus = pytest.ExitCode.OK
