"""Verify: a wheel holds exactly what its RECORD says, before anything of it is installed."""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import zipfile
import zlib
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from plughost import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GROUP: Final = "plughost.plugins"
_STRONG: Final = frozenset({"sha256", "sha384", "sha512"})
_SIGNATURES: Final = ("RECORD", "RECORD.jws", "RECORD.p7s")  # these can't be in RECORD with a hash


def verify_wheel(wheel: Path) -> None:
    """Refuse a wheel in which a file was changed, added or removed after it was built.

    The binary distribution format has each file in RECORD with its hash, and pip doesn't look. What isn't even an
    archive, or has a wrong checksum in it, is left to pip, which refuses that.

    Args:
        wheel: The file.

    Raises:
        CommandError: It is not what its RECORD says; the message names a file.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            fault = next(_faults(archive), None)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        return
    if fault is not None:
        raise CommandError(
            f"{wheel} was changed after it was built: {fault}. Get it again from where you trust it to come from."
        )


def brings_plugins(wheel: Path) -> bool:
    """Tell whether a wheel brings a plugin, as far as it can be read."""
    config = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
            for name in names:
                config.read_string(archive.read(name).decode())
    except (zipfile.BadZipFile, zlib.error, UnicodeDecodeError, configparser.Error):
        return True  # nobody can tell; pip or the host will
    return config.has_section(_GROUP)


def _faults(archive: zipfile.ZipFile) -> Iterator[str]:
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    yield from (f"it holds {name} twice" for name, count in Counter(names).items() if count > 1)
    yield from (f"{name} lies outside" for name in names if name[0] == "/" or ".." in PurePosixPath(name).parts)
    records = [name for name in names if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        yield f"it has {len(records)} RECORDs"
        return
    try:
        rows = {row[0]: row[1] for row in csv.reader(archive.read(records[0]).decode().splitlines()) if row}
    except (UnicodeDecodeError, csv.Error, IndexError):
        yield "its RECORD can't be read"
        return
    yield from (f"{name} is in its RECORD and not in it" for name in rows if name not in names)
    for name in names:
        if name.removeprefix(records[0].removesuffix("RECORD")) in _SIGNATURES:
            continue
        if name not in rows:
            yield f"{name} is not in its RECORD"
        elif not _matches(archive.read(name), rows[name]):
            yield f"{name} is not what its RECORD says"


def _matches(content: bytes, stated: str) -> bool:
    algorithm, _, digest = stated.partition("=")
    if algorithm not in _STRONG:
        return False
    made = hashlib.new(algorithm, content).digest()
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode() == digest.rstrip("=")
