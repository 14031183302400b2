"""pip as a separate process."""

from __future__ import annotations

from pathlib import Path

import pytest

from plughost_packages import pip


def _children() -> set[str]:
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def test_an_interrupted_command_leaves_no_pip_behind() -> None:
    """Otherwise pip would continue while its changes are undone."""
    before = _children()

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pip.run(["list", "--verbose"], interrupted)
    assert _children() <= before
