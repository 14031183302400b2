"""`plughost install` and `uninstall` after an installation that was killed half-way."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from tests.stores.disks import small_disk
from tests.waiting import wait_until

from plughost_packages.keeping import _list_files, _put_back

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


def test_what_a_killed_restoration_left_is_removed(sandbox: Sandbox) -> None:
    """Else pip would keep the metadata folder of the old version, and no later upgrade would have an effect."""
    sandbox.run("install", speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    left = [sandbox.site / name for name in ("plughost_greeter-1.0.dist-info/REQUESTED", "speaking_greeter/data")]
    for path in left:
        path.with_name(f"{path.name}.plughost-restored").write_text("half of")
    (sandbox.python.parents[1] / ".plughost.lock").write_text("plughost-greeter")
    sandbox.run("install", speaker_wheel(sandbox.wheels, "greeter", "2.0", "hello again"))
    assert sandbox.versions()["plughost_greeter"] == "2.0"
    assert not list(sandbox.site.rglob("*.plughost-restored"))


def test_a_restoration_writes_last_what_makes_a_distribution_whole(tmp_path: Path) -> None:
    """Killed before, it leaves what the next command recognises as a half."""
    info = tmp_path / "plughost_greeter-1.0.dist-info"
    copies = {info / name: tmp_path / name for name in ("INSTALLER", "METADATA", "RECORD", "WHEEL")}
    for copy in copies.values():
        copy.write_text("saved")
    (tmp_path / "WHEEL").unlink()  # restoring it fails
    with pytest.raises(FileNotFoundError):
        _put_back(set(), _list_files(), copies)
    assert {path.name for path in info.iterdir()} == {"METADATA"}


def test_a_full_disk_for_temporary_files_is_named(sandbox: Sandbox, tmp_path: Path) -> None:
    """The error names the file that couldn't be written, and not the one that was copied from another disk."""
    files = {"speaking_greeter/data": "too large" * 1_000_000}
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", files=files))
    (temporary := tmp_path / "temporary").mkdir()
    with small_disk(temporary):
        output = sandbox.run("uninstall", "greeter", "--yes", code=1, TMPDIR=str(temporary))
    assert f"can't write {temporary}/" in output
    assert sandbox.versions()["plughost_greeter"] == "1.0"
