"""Odd wheels: damaged, huge, or with files that have no name."""

from __future__ import annotations

import random
import tracemalloc
import zipfile
from typing import TYPE_CHECKING

import pytest

from plughost import CommandError
from plughost_packages.verifying import verify_wheel

from .wheels import build_wheel, own_record, rewrite, speaker_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from .environments import Sandbox


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_that_can_not_be_read_is_left_to_pip(tmp_path: Path, kind: int) -> None:
    """Each compression has errors of its own for damaged data."""
    wheel = build_wheel(tmp_path, "plughost-noisy", "1.0", {"noise.txt": random.Random(0).randbytes(1000)})
    rewrite(wheel, own_record, kind)
    data = bytearray(wheel.read_bytes())
    data[60:600] = bytes(540)  # noise.txt comes first
    wheel.write_bytes(data)
    verify_wheel(wheel)


def test_a_file_without_a_name_is_refused(sandbox: Sandbox) -> None:
    """The message says why, without a traceback."""
    wheel = speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello")
    nameless = zipfile.ZipInfo("x")
    nameless.filename = ""
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(nameless, b"evil")
    output = sandbox.run("install", wheel, code=1)
    assert "Traceback" not in output
    assert "was changed after it was built" in output


@pytest.mark.parametrize("other", ["many/./a.py", "many//a.py", "./many/a.py"])
def test_two_names_of_one_file_are_refused(tmp_path: Path, other: str) -> None:
    """The second would overwrite the first, which then differs from its RECORD."""
    wheel = build_wheel(tmp_path, "plughost-many", "1.0", {"many/a.py": "a", other: "b"})
    with pytest.raises(CommandError, match=r"it holds many/a\.py twice"):
        verify_wheel(wheel)


class CountedName(str):
    """A name that counts how often any is compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_the_effort_grows_with_the_number_of_files_not_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel of a megabyte can hold 100,000 empty files, which would take minutes."""
    wheel = build_wheel(tmp_path, "plughost-many", "1.0", {f"many/{number}": "" for number in range(1000)})
    names = zipfile.ZipFile.namelist
    monkeypatch.setattr(zipfile.ZipFile, "namelist", lambda archive: list(map(CountedName, names(archive))))
    verify_wheel(wheel)
    assert 0 < CountedName.compared < 20_000


def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """A small wheel can hold a huge file."""
    wheel = build_wheel(tmp_path, "plughost-huge", "1.0", {"huge.txt": bytes(2**26)})
    tracemalloc.start()
    try:
        verify_wheel(wheel)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**23
