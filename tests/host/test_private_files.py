"""Private files: only their owner can read them, and they survive a power cut."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from plughost._files import locked_folder, write_private

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_only_the_owner_can_read_a_files_new_content(tmp_path: Path) -> None:
    """A file is created or replaced with mode 0600, and no other file is left in the folder."""
    path = tmp_path / "keys" / "key"
    for content in (b"one", b"two"):
        with locked_folder(path.parent):
            write_private(path, content)
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (content, 0o600)
    assert sorted(each.name for each in path.parent.iterdir()) == [".lock", "key"]


def test_a_file_and_its_name_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is on the disk before the file gets its name, and the folder is synced before the return."""
    path, synced, fsync = tmp_path / "key", list[tuple[bool, bool]](), os.fsync

    def note(descriptor: int) -> None:
        is_folder = os.path.samestat(os.fstat(descriptor), tmp_path.stat())
        synced.append((is_folder, path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    write_private(path, b"secret")
    assert synced == [(False, False), (True, True)]
