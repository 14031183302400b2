"""The owner of files that root's commands create in the data folder of a service's user."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Line

NOBODY = 65534


@pytest.fixture
def data(line: Line) -> Path:
    """The data folder of a user other than root."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files for others")
    line.configure('data_dir = "data"')
    folder = line.folder / "data"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    return folder


def test_files_created_by_root_belong_to_the_owner_of_the_folder(line: Line, data: Path) -> None:
    """After a command, its folders and files are the owner's, including private ones."""
    assert line.run("cert", "create").exit_code == 0
    made = list(data.rglob("*"))
    assert data / "tls" / "key.pem" in made
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(NOBODY, NOBODY)}


def test_an_audit_file_created_by_root_is_writable_for_the_host(line: Line, data: Path) -> None:
    """It is outside of the data folder, and belongs to that folder's owner."""
    line.configure('data_dir = "data"\nlog.audit = "audit.jsonl"')
    line.install("alpha")
    assert line.run("disable", "alpha").exit_code == 0
    written = (line.folder / "audit.jsonl").stat()
    assert (written.st_uid, written.st_gid, written.st_size > 0) == (NOBODY, NOBODY, True)


def test_the_doctor_keeps_roots_settings_readable_for_the_host(line: Line, data: Path) -> None:
    """`chmod 600` on a file of root's would lock out the host's user."""
    line.configure('data_dir = "data"\n[tls]\npassword = "sesame"')
    file = line.folder / "plughost.toml"
    file.chmod(0o644)
    line.folder.chmod(0o755)
    found = json.loads(line.run("doctor", "--json").output)
    (remedy,) = [each["todo"] for each in found if each["about"] == "permissions"]
    assert f"chgrp {NOBODY} {file} && chmod 640 {file}" in remedy


def test_the_doctor_names_files_of_another_user_in_the_data_folder(line: Line, data: Path) -> None:
    """The host may be unable to read them, as after a restored copy; the advice is how to give them to its user."""
    (data / "stores").mkdir()
    for path, owner in ((data / "stores", NOBODY), (data / "stores" / "notes.sqlite3", 0), (data / "kept", NOBODY)):
        path.touch()
        os.chown(path, owner, owner)
    found = json.loads(line.run("doctor", "--json").output)
    (finding,) = [each for each in found if each["about"] == "permissions"]
    assert finding["found"] == f"{data / 'stores' / 'notes.sqlite3'}: not of {data}'s owner"
    assert f"chown -R --reference={data} {data}" in finding["todo"]


def test_a_failed_command_leaves_no_file_of_root(line: Line, data: Path) -> None:
    """A command that ends with an error also changes the owner of its files."""
    (data / "tls").mkdir()
    (data / "tls" / "begun").touch()
    assert line.run("cert", "export").exit_code == 1
    assert (data / "tls" / "begun").stat().st_uid == NOBODY


def test_other_files_of_root_keep_their_owner(line: Line, data: Path) -> None:
    """The owner may have placed a link or a hard link there; such files stay root's."""
    secret, other = line.folder / "secret", line.folder / "other"
    secret.touch()
    other.touch()
    (data / "link").symlink_to(secret)
    os.link(other, data / "name")
    assert line.run("cert", "create").exit_code == 0
    assert secret.stat().st_uid == other.stat().st_uid == 0


@pytest.fixture
def stranger(line: Line, data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data folder of another user, inaccessible to this one; no host runs on it."""
    line.run("status")
    line.run("doctor")  # modules to import may be inaccessible later
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        other = Path(folder, "data")
        other.mkdir(mode=0o700)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PLUGHOST_DATA_DIR", str(other))
        os.seteuid(NOBODY)
        try:
            if not os.access(Path(__file__), os.R_OK, effective_ids=True):
                pytest.skip("the checkout is in a folder that other users can't enter")
            yield other
        finally:
            os.seteuid(0)


def test_an_inaccessible_folder_says_nothing_about_a_host(line: Line, stranger: Path) -> None:
    """The command neither affirms nor denies that a host runs on another user's data folder."""
    result = line.run("status")
    assert result.exit_code == 1
    message = f"Error: The data folder {stranger} is another user's, who alone can tell whether a host runs on it: "
    assert result.output == f"{message}run this command as that user.\n"
    assert "this user can't see whether one runs" in " ".join(line.run("doctor").output.split())
