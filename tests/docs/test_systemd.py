"""Systemd accepts the documentation's unit file, which restricts the host's permissions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click import UsageError

PAGES = Path(__file__).parents[2] / "docs" / "operators"
BLOCK = re.compile(r"^```ini\n# (/etc/systemd/system/\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def units() -> dict[str, list[str]]:
    """Return the unit files on the pages, by name."""
    found: dict[str, list[str]] = {}
    for page in sorted(PAGES.glob("*.md")):
        for path, content in BLOCK.findall(page.read_text(encoding="utf-8")):
            found.setdefault(Path(path).name, []).append(content)
    return found


def test_each_unit_file_is_shown_once() -> None:
    """No page shows another version or a part of it."""
    assert {name: len(each) for name, each in units().items()}["plughost.service"] == 1
    assert all(len(each) == 1 for each in units().values())
    shown = sum(page.read_text(encoding="utf-8").count("ExecStart=") for page in PAGES.glob("*.md"))
    assert shown == 1


def test_refused_starts_neither_end_nor_hurry() -> None:
    """They are repeated as often as necessary, with a pause; but a wrong settings file stays wrong."""
    lines = units()["plughost.service"][0].splitlines()
    assert {"StartLimitIntervalSec=0", "RestartSec=5", f"RestartPreventExitStatus={UsageError.exit_code}"} <= {*lines}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_has_a_low_exposure(tmp_path: Path) -> None:
    """`systemd-analyze security` rates it below 3.0."""
    unit = tmp_path / "plughost.service"
    unit.write_text(units()["plughost.service"][0])
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", str(unit)]
    rated = subprocess.run(command, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout + rated.stderr
