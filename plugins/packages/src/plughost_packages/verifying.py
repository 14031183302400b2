"""Verification that a wheel contains exactly what its RECORD says, before it is installed."""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from collections import Counter
from pathlib import PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Final

from plughost import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STRONG_HASHES: Final = frozenset({"sha256", "sha384", "sha512"})
_SIGNATURES: Final = ("RECORD", "RECORD.jws", "RECORD.p7s")  # not listed in RECORD with a hash


def verify_wheel(wheel: Path) -> None:
    """Refuse a wheel in which a file was changed, added or removed after it was built.

    The wheel format lists each file with its hash in RECORD, but pip doesn't check them. Invalid archives and wrong
    checksums are left to pip, which refuses them.

    Raises:
        CommandError: The wheel doesn't match its RECORD; the message names a file.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            fault = next(_faults(archive), None)
    except Exception:  # noqa: BLE001 - each compression has errors of its own, and pip reads the same files
        return
    if fault is not None:
        raise CommandError(
            f"{wheel} was changed after it was built: {fault}. Get it again from a source that you trust."
        )


def recorded_hash(hashed: hashlib._Hash) -> str:
    """Return the hash of a file as RECORD has it, such as `sha256=...`."""
    return f"{hashed.name}={base64.urlsafe_b64encode(hashed.digest()).rstrip(b'=').decode()}"


def _faults(archive: zipfile.ZipFile) -> Iterator[str]:
    names = [name for name in archive.namelist() if not name.endswith("/")]
    yield from ("it holds a file without a name" for name in names if not name)
    yield from (f"it holds {name} twice" for name, count in Counter(map(normpath, names)).items() if count > 1)
    yield from (
        f"{name} is outside of it" for name in names if name.startswith("/") or ".." in PurePosixPath(name).parts
    )
    records = [name for name in names if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        yield f"it has {len(records)} RECORDs"
        return
    try:
        rows = {row[0]: row[1] for row in csv.reader(archive.read(records[0]).decode().splitlines()) if row}
    except (UnicodeDecodeError, csv.Error, IndexError):
        yield "its RECORD can't be read"
        return
    yield from (f"{name} is missing" for name in sorted(rows.keys() - set(names)))
    for name in names:
        if name.removeprefix(records[0].removesuffix("RECORD")) in _SIGNATURES:
            continue
        if name not in rows:
            yield f"{name} is not in its RECORD"
        elif not _matches(archive, name, rows[name]):
            yield f"{name} differs from its RECORD"


def _matches(archive: zipfile.ZipFile, name: str, recorded: str) -> bool:
    algorithm = recorded.partition("=")[0]
    if algorithm not in _STRONG_HASHES:
        return False
    with archive.open(name) as file:
        return recorded_hash(hashlib.file_digest(file, algorithm)) == recorded.rstrip("=")  # type: ignore[arg-type] # it needs only readinto
