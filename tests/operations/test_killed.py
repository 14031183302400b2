"""`plughost install` and `uninstall` after an installation that was killed half-way."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from tests.waiting import wait_until

from .test_install import gate, write_slow_project
from .wheels import speaker_wheel

if TYPE_CHECKING:
    from .environments import Sandbox


@pytest.mark.parametrize("left", [["METADATA"], ["METADATA", "WHEEL", "entry_points.txt", "RECORD"]])
def test_a_killed_installation_can_be_repeated(sandbox: Sandbox, left: list[str]) -> None:
    """Its pip had not written all metadata: repeated, the command installs everything, and pip can remove it."""
    wheel = speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello")
    with TemporaryDirectory() as folder, gate(Path(folder)) as (wait, mark):
        write_slow_project(sandbox.folder / "slow", wait)
        with sandbox.running("install", "--yes", wheel, "./slow") as process:
            wait_until(mark.exists)
            process.kill()
            process.wait()
            output = sandbox.run("install", "greeter", code=1)
            assert "Another command is changing the environment" in output, "its pip goes on"
    for path in (sandbox.site / "plughost_greeter-1.0.dist-info").iterdir():
        if path.name not in left:
            path.unlink()
    assert "left a part of plughost_greeter-1.0" in sandbox.run("install", "greeter", "--dry-run", code=1)
    wait_until(lambda: "Another command" not in sandbox.run("uninstall", "unknown", "--yes", code=1))
    assert "plughost_greeter-1.0" in sandbox.run("install", "greeter")
    assert {each["name"] for each in sandbox.json("plugins")} == {"greeter", "packages"}
    sandbox.run("uninstall", "greeter", "--yes")
    assert not list(sandbox.site.glob("*greeter*"))
