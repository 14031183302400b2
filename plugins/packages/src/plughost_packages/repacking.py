"""Repack: make a wheel of an installed distribution, so that it can be installed again without an index."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import sys
import sysconfig
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.utils import canonicalize_name

from plughost import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plughost import InstalledDistribution

KEPT_VERSIONS: Final = 5
"""How many versions of a distribution are kept."""

# What the installer adds to a distribution's own files.
_INSTALLERS: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def repack(distribution: InstalledDistribution, folder: Path) -> Path | None:
    """Write a wheel with the files of an installed distribution.

    Args:
        distribution: The distribution.
        folder: Where to; made where it is missing.

    Returns:
        The wheel, which may have been there before. None where there is nothing to make one of: the distribution is
        installed in place, or some of its files are gone or out of reach.

    Raises:
        CommandError: The wheel can't be written; nothing of it is left.
    """
    info = next((file.parts[0] for file in distribution.files or () if file.name == "RECORD"), None)
    tags = re.findall(r"^Tag: *([^-\s]+)-([^-\s]+)-([^-\s]+)", distribution.read_text("WHEEL") or "", re.MULTILINE)
    if distribution.is_editable or info is None or not tags:
        return None
    joined = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    stem = info.removesuffix(".dist-info")
    wheel = folder / f"{stem}-{joined}.whl"
    if wheel.exists():
        wheel.touch()
        return wheel
    try:
        content = list(_content(distribution, stem))
    except OSError:
        return None
    unfinished = wheel.with_suffix(".unfinished")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(unfinished, info, content)
        unfinished.replace(wheel)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise CommandError(f"The wheel {wheel} can't be written: {error.strerror}.") from None
    _prune(folder, canonicalize_name(distribution.metadata["Name"]))
    return wheel


def _content(distribution: InstalledDistribution, stem: str) -> Iterator[tuple[str, bytes, int]]:
    """Yield the path in the wheel, the bytes and the mode of each file."""
    scripts, prefix = Path(sysconfig.get_path("scripts")), Path(sys.prefix)
    made = {point.name for point in distribution.entry_points if point.group in {"console_scripts", "gui_scripts"}}
    for file in distribution.files or ():
        name = file.as_posix()
        if "__pycache__" in file.parts or (name.startswith(f"{stem}.dist-info/") and file.name in _INSTALLERS):
            continue
        path = Path(os.path.normpath(str(distribution.locate_file(file))))
        if ".." in file.parts:
            if path.parent == scripts:
                if path.stem in made or path.name in made:
                    continue  # the installer makes it anew
                name = f"{stem}.data/scripts/{path.name}"
            elif path.is_relative_to(prefix):
                name = f"{stem}.data/data/{path.relative_to(prefix).as_posix()}"
            else:
                raise FileNotFoundError(path)
        content = path.read_bytes()
        if "/scripts/" in name and name.startswith(f"{stem}.data/"):
            content = re.sub(rb"^#!.*python.*", b"#!python", content, count=1)
        yield name, content, path.stat().st_mode


def _write(file: Path, info: str, content: list[tuple[str, bytes, int]]) -> None:
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data, mode in content:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow([name, f"sha256={digest}", len(data)])
            archive.writestr(_entry(name, mode), data)
        rows.writerow([f"{info}/RECORD", "", ""])
        archive.writestr(_entry(f"{info}/RECORD", 0o644), record.getvalue())


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)  # the same content makes the same wheel
    entry.external_attr = (mode & 0o777 | 0o100000) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _prune(folder: Path, key: str) -> None:
    """Remove the oldest wheels of a distribution."""
    own = [wheel for wheel in folder.glob("*.whl") if canonicalize_name(wheel.name.split("-")[0]) == key]
    for wheel in sorted(own, key=lambda each: each.stat().st_mtime_ns)[:-KEPT_VERSIONS]:
        wheel.unlink(missing_ok=True)
