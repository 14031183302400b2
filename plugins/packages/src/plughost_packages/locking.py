"""Lock files: the exact set of installed distributions, in a file that pip can install from.

It is a requirements file with hashes, which every pip can install with `--require-hashes`.
"""

from __future__ import annotations

import hashlib
import platform
import re
import secrets
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from plughost import CommandError, Environment
from plughost_packages import pip
from plughost_packages.names import HOST
from plughost_packages.places import are_nowhere
from plughost_packages.repacking import repack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from plughost import InstalledDistribution

LOCK_NAME: Final = "plughost.lock"
"""The name of the file by default, and in a bundle."""

_CHECKSUM: Final = "# The SHA-256 of what follows: "
_HASH: Final = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A distribution of a locked set.

    Attributes:
        name: Its normalised name.
        version: Its version; None if the lock file names a URL instead.
        url: Its URL, if it is not from an index.
        hashes: The hashes of the files that may be installed, as `sha256:...`.
        file: The local file that it was installed from, if any.
    """

    name: str
    version: str | None
    url: str | None = None
    hashes: tuple[str, ...] = ()
    file: Path | None = None

    def __str__(self) -> str:
        """Return the requirement, without the hashes."""
        return f"{self.name} @ {self.url}" if self.url is not None else f"{self.name}=={self.version}"


def members(environment: Environment) -> list[str]:
    """Return the normalised names of the set: the host, the plugins, and all that they require.

    An extra of the host or of a plugin is included if all its requirements are installed.
    """
    roots = {HOST, *environment.owners.values()} & environment.installed.keys()
    extras = {key: list(_installed_extras(key, environment)) for key in roots}
    return sorted(environment.closure(roots, extras))


def lock(where: Sequence[str], wheels: Path, tell: pip.Tell) -> list[Locked]:
    """Return the locked set, with the hash of the file that each distribution is installed from on this platform.

    A wheel is added to `wheels`, the folder with those of replaced distributions, for each distribution that was built
    from a folder or a repository, or that pip does not find.

    Raises:
        CommandError: A distribution is installed in place, or pip does not find it.
    """
    environment = Environment()
    entries: list[Locked] = []
    from_index: dict[str, Locked] = {}
    editable: list[str] = []
    for key in members(environment):
        distribution = environment.installed[key]
        origin = distribution.direct_url
        if origin is None:
            from_index[key] = Locked(name=key, version=distribution.version)
            continue
        entry = _from_archive(key, distribution.version, origin) or _from_files(key, distribution, wheels)
        if entry is None:
            editable.append(f"{environment.name(key)} {distribution.version} ({origin.get('url')})")
        else:
            entries.append(entry)
    if editable:
        raise CommandError(
            f"These are installed in place, so there is no file to lock: {', '.join(editable)}. "
            "Build a wheel of each (pip wheel --no-deps), and install that."
        )
    return sorted([*entries, *_from_index(from_index, environment, where, wheels, tell)], key=lambda entry: entry.name)


def lock_text(entries: Iterable[Locked]) -> str:
    """Return the content of a lock file."""
    version = ".".join(map(str, sys.version_info[:2]))
    lines = [
        "# The exact versions of a host, its plugins and their requirements; made by `plughost lock`",
        f"# for {platform.python_implementation()} {version} on {platform.system()} {platform.machine()}.",
        f"# To install it: pip install --require-hashes -r {LOCK_NAME}",
    ]
    for entry in entries:
        if entry.file is not None:
            lines.append(f"# {entry.name} is not from an index, but from {entry.file}")
        lines.append(" \\\n    ".join([str(entry), *(f"--hash={each}" for each in entry.hashes)]))
    text = "\n".join(lines) + "\n"
    return f"{_CHECKSUM}{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def read_lock(file: Path) -> list[Locked]:
    """Read a lock file.

    Raises:
        CommandError: The file can't be read, or is not a lock file.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(f"There is no lock file {file}; `plughost lock` writes one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The lock file {file} can't be read: {getattr(error, 'strerror', error)}") from None
    if _CHECKSUM.strip() in text:
        head, _, rest = text.partition("\n")
        if head != f"{_CHECKSUM}{hashlib.sha256(rest.encode()).hexdigest()}":
            raise CommandError(f"The lock file {file} was changed after it was made: its checksum is wrong.")
    entries = []
    for line in text.replace("\\\n", " ").splitlines():
        stated = re.sub(r"(^|\s)#.*", "", line).strip()
        if not stated:
            continue
        try:
            requirement = Requirement(_HASH.sub("", stated).strip())
        except InvalidRequirement as error:
            raise CommandError(f"{file} is not a lock file: {stated!r}: {error}") from None
        pins = [each.version for each in requirement.specifier if each.operator == "=="]
        if requirement.url is None and len(pins) != 1:
            raise CommandError(f"{file} is not a lock file: {stated!r} names no exact version.")
        entries.append(
            Locked(
                name=canonicalize_name(requirement.name),
                version=pins[0] if pins else None,
                url=requirement.url,
                hashes=tuple(_HASH.findall(stated)),
            )
        )
    return entries


def write_lock(file: Path, entries: Iterable[Locked]) -> None:
    """Write a lock file, or replace it, in one step.

    Raises:
        CommandError: The file can't be written; an old one is untouched.
    """
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(8)}.plughost-new")
    try:
        fresh.write_text(lock_text(entries), encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        with suppress(OSError):  # as where its folder is a file
            fresh.unlink()
        raise CommandError(f"The lock file {file} can't be written: {error.strerror}.") from None


def compare(entries: Iterable[Locked]) -> list[dict[str, str | None]]:
    """Return the differences between the installed and a locked set, without pip or a network.

    Returns:
        For each, `distribution`, `what` (`missing`, `extra` or `other version`), and the `locked` and the `installed`
        version, or None.
    """
    environment = Environment()
    locked = {entry.name: entry for entry in entries}
    found = []
    for key in sorted({*locked, *members(environment)}):
        entry, version = locked.get(key), environment.versions.get(key)
        if entry is None or version is None or not _matches(entry, environment.installed[key]):
            what = "extra" if entry is None else "missing" if version is None else "other version"
            wanted = None if entry is None else entry.version or entry.url
            found.append({"distribution": key, "what": what, "locked": wanted, "installed": version})
    return found


def hash_of(file: Path) -> str:
    """Return the hash of a file, as `sha256:...`."""
    with file.open("rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


def _installed_extras(key: str, environment: Environment) -> Iterable[str]:
    for extra in environment.installed[key].metadata.get_all("Provides-Extra") or ():
        asked = [canonicalize_name(each.name) for each in environment.requirements(key, extra)]
        if asked and environment.installed.keys() >= set(asked):
            yield extra


def _from_archive(key: str, version: str, origin: Mapping[str, Any]) -> Locked | None:
    """Return the entry of a distribution that was installed from a file or its URL (PEP 610), else None."""
    archive = origin.get("archive_info")
    if archive is None:
        return None
    hashes = archive.get("hashes")
    known = hashes.get("sha256") if isinstance(hashes, dict) else str(archive.get("hash")).removeprefix("sha256=")
    url = origin.get("url")
    if url is None or not re.fullmatch(r"[0-9a-f]{64}", str(known)):
        return None
    if url.startswith("file:"):
        file = Path(url2pathname(urlsplit(url).path))
        return Locked(name=key, version=version, hashes=(f"sha256:{known}",), file=file)
    return Locked(name=key, version=None, url=url, hashes=(f"sha256:{known}",))


def _from_files(key: str, distribution: InstalledDistribution, wheels: Path) -> Locked | None:
    """Make a wheel of an installed distribution that was built from a folder or a repository, and return its entry."""
    wheel = repack(distribution, wheels)
    if wheel is None:
        return None
    return Locked(name=key, version=distribution.version, hashes=(hash_of(wheel),), file=wheel)


def _from_index(
    left: dict[str, Locked], environment: Environment, where: Sequence[str], wheels: Path, tell: pip.Tell
) -> list[Locked]:
    """Return entries from an index or a folder with the hash of the file that pip would install now.

    If pip does not find a distribution, make a wheel of the installed one.
    """
    made: list[Locked] = []

    def make_wheel(name: str) -> bool:
        entry = _from_files(name, environment.installed[name], wheels)
        if entry is not None:
            made.append(entry)
            del left[name]
        return entry is not None

    for name in tuple(left) if are_nowhere(where) else ():  # pip would tell one name at a time, which takes minutes
        make_wheel(name)
    with tempfile.TemporaryDirectory(prefix="plughost-") as folder:
        while left:
            try:
                pip.run(["download", "--no-deps", "--dest", folder, *where, *map(str, left.values())], tell, places=())
            except pip.NotFound as error:
                name = canonicalize_name(error.name)
                if name not in left or not make_wheel(name):
                    raise
            else:
                break
        hashes = {_owner(file.name, left): hash_of(file) for file in Path(folder).iterdir()}
    return [*made, *(replace(entry, hashes=(hashes[name],)) for name, entry in left.items())]


def _owner(file: str, names: Iterable[str]) -> str:
    """Return which distribution a file belongs to. File names spell the names of distributions in several ways."""
    return max((each for each in names if canonicalize_name(file).startswith(f"{each}-")), key=len)


def _matches(entry: Locked, distribution: InstalledDistribution) -> bool:
    if entry.url is not None:
        return (distribution.direct_url or {}).get("url") == entry.url
    return distribution.version == entry.version
