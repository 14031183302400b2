"""Lock files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plughost_packages.locking import Locked, read_lock, write_lock

if TYPE_CHECKING:
    import pytest


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
