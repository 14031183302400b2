"""Lock files."""

from __future__ import annotations

from pathlib import Path

import pytest

from plughost import CommandError
from plughost_packages.locking import Locked, read_lock, write_lock


def test_two_writers_at_once_both_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole second `plughost lock` runs just before the first one puts its file in place; the last to do so wins."""
    file, replace = tmp_path / "plughost.lock", Path.replace
    first, second = (Locked(name=name, version="1.0") for name in ("first", "second"))

    def interrupted(fresh: Path, target: Path) -> Path:
        monkeypatch.undo()
        write_lock(file, [second])
        assert read_lock(file) == [second]
        return replace(fresh, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    write_lock(file, [first])
    assert read_lock(file) == [first]
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    """An unusable place is an error of the command, without a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=r"file/plughost\.lock can't be written: Not a directory\."):
        write_lock(tmp_path / "file" / "plughost.lock", [])
