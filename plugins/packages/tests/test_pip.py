"""pip, run as a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from plughost_packages import pip


def _children() -> set[str]:
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def test_an_interrupted_command_leaves_no_pip_behind() -> None:
    """Else what it did would be undone while it goes on doing it."""
    before = _children()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pip.run(["list", "--verbose"], interrupted)
    assert _children() <= before
