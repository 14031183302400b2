"""Plans: what an operation will do to each distribution, and the file that it comes from."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

from plughost import CommandError, Environment
from plughost_packages import pip
from plughost_packages.attesting import verify_attestations
from plughost_packages.careful_pip import TOLD
from plughost_packages.locking import hash_of
from plughost_packages.names import place_of
from plughost_packages.ownership import refuse_overwriting
from plughost_packages.repacking import wheels_of
from plughost_packages.verifying import verify_wheel

if TYPE_CHECKING:
    from plughost import InstalledDistribution, PluginContext
    from plughost_packages.settings import Settings

# A source distribution runs code as soon as pip reads its metadata, before the plan can be shown.
_WHEELS_ONLY: Final = ("--only-binary", ":all:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an operation does to one distribution.

    Attributes:
        distribution: Its name.
        before: The installed version; None if there is none.
        after: The version that will be installed; None if it is removed.
        file: The file of the new version; empty if it is built from a folder or a repository.
        source: The URL of the file, folder or repository, without credentials.
        sha256: The file's hash.
        needs_restart: Whether the host itself uses it, so that a reload is not enough.
    """

    distribution: str
    before: str | None
    after: str | None
    file: str = ""
    source: str = ""
    sha256: str = ""
    needs_restart: bool = False

    @property
    def key(self) -> str:
        """The normalised name."""
        return canonicalize_name(self.distribution)

    @property
    def verb(self) -> str:
        """The name of the change in the audit trail."""
        return "uninstall" if self.after is None else "install" if self.before is None else "upgrade"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of an operation.

    Attributes:
        changes: The change of each distribution.
        calls: The arguments of each call of pip, in order.
        wheels: The wheels to install, by normalised name.
        unasked: Normalised names of the distributions that are installed only because others require them.
    """

    changes: tuple[Change, ...]
    calls: tuple[tuple[str, ...], ...] = ()
    wheels: Mapping[str, InstalledDistribution] = field(default_factory=dict)
    unasked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A distribution in pip's installation report.

    Attributes:
        url: Its URL, with the credentials that the operator gave.
        fragment: The fragment of its URL: the folder in the file or repository, if it is not the top.
        requirement: The requirement that makes pip install exactly this.
        is_file: Whether it is a file, not a folder or a repository.
        is_asked: Whether the operator asked for it, not another distribution.
        announced: The SHA-256 hash that its index names, if any.
    """

    name: str
    version: str
    url: str
    fragment: str
    requirement: str
    is_file: bool
    is_asked: bool
    announced: str | None

    @property
    def is_here(self) -> bool:
        return self.url.startswith("file:")

    def path(self, folder: Path) -> Path:
        """Return the file's path: on this machine, or in the folder that pip downloads it to."""
        path = Path(url2pathname(urlsplit(self.url).path))
        return path if self.is_here else folder / path.name


def _read_item(report: Mapping[str, Any], given: Mapping[str, str]) -> _Item:
    """Read an item of the report. `given` has the hosts that the operator gave, with credentials, by bare URL."""
    name, version, source = report["metadata"]["name"], report["metadata"]["version"], report["download_info"]
    parts = urlsplit(source["url"])
    url = urlunsplit(parts._replace(netloc=given.get(_bare(source["url"]), parts.netloc)))
    requirement = f"{name}=={version}"
    fragment = f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else ""
    if report.get("is_direct"):
        if not report.get("requested"):  # in case `careful_pip` missed it
            raise CommandError(f"{TOLD}{name} from {without_credentials(url)}.")
        vcs = source.get("vcs_info")
        requirement = f"{name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else f"{name} @ {url}"
        requirement += fragment
    return _Item(
        name=name,
        version=version,
        url=url,
        fragment=fragment,
        requirement=requirement,
        is_file="archive_info" in source,
        is_asked=bool(report.get("requested")),
        announced=source.get("archive_info", {}).get("hashes", {}).get("sha256"),
    )


@contextmanager
def plan_install(
    context: PluginContext[Settings],
    requirements: Sequence[str],
    where: Sequence[str],
    tell: pip.Tell,
    *,
    upgrade: bool,
) -> Iterator[Plan]:
    """Plan an installation. All its files are downloaded, and wheels are verified against their RECORD.

    `where` has pip's options for indexes and folders. The folder with wheels of replaced or removed distributions is
    searched only if pip fails without it. With `upgrade`, what is installed is upgraded to the newest version.

    Raises:
        PipError: The requirements can't be resolved.
        CommandError: A file was changed or is not allowed, or a package names a URL that the operator did not.
    """
    wheels = wheels_of(context)
    where = [*_WHEELS_ONLY, *where]
    wanted = [*(["--upgrade"] if upgrade else []), *requirements]
    urls = [place_of(each) for each in requirements]
    given = {_bare(each): urlsplit(each).netloc for each in urls}
    named = [without_credentials(each) for each in urls]
    try:
        report = pip.report([*where, *wanted], tell, named)
    except pip.PipError as error:
        if not any(wheels.glob("*.whl")):
            raise _with_advice(error, where) from None
        where += ["--find-links", str(wheels)]
        try:
            report = pip.report([*where, *wanted], tell, named)
        except pip.PipError:
            raise _with_advice(error, where) from None
    items = [_read_item(each, given) for each in report]
    with tempfile.TemporaryDirectory(prefix="plughost-") as folder:
        yield _make_plan(context, items, where, Path(folder), tell)


def plan_uninstall(keys: Collection[str]) -> Plan:
    """Plan the removal of distributions, by their normalised names."""
    environment = Environment()
    changes = (
        Change(distribution=environment.name(key), before=environment.versions[key], after=None) for key in sorted(keys)
    )
    return Plan(changes=tuple(changes), calls=(("uninstall", "--yes", *sorted(keys)),))


def refuse_not_allowed(
    context: PluginContext[Any], versions: Iterable[tuple[str, str | None]], environment: Environment
) -> None:
    """Refuse versions of an environment's plugins that the settings don't allow."""
    for name, version in versions:
        key = canonicalize_name(name)
        if version is not None and key in environment.installed and environment.plugins_of(key):
            why = context.host.why_not_allowed(name, version)
            if why is not None:
                raise CommandError(f"{why}.")


def without_credentials(url: str) -> str:
    """Return a URL without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _bare(url: str) -> str:
    """Return a URL as pip reports it, without credentials: what names a revision or a folder is left out."""
    parts = urlsplit(without_credentials(url))
    vcs, _, scheme = parts.scheme.rpartition("+")
    path = parts.path.rsplit("@", 1)[0] if vcs else parts.path
    return urlunsplit(parts._replace(scheme=scheme, path=path, fragment=""))


def _make_plan(
    context: PluginContext[Settings], items: Sequence[_Item], where: Sequence[str], folder: Path, tell: pip.Tell
) -> Plan:
    environment, settings = Environment(), context.settings
    attested = partial(verify_attestations, builders=settings.attested_by, required=settings.require_attestations)
    elsewhere = [each.requirement for each in items if each.is_file and not each.is_here]
    if elsewhere:
        pip.run(["download", "--no-deps", "--dest", str(folder), *where, *elsewhere], tell)
    changes, pins, sources, builds, wheels = [], [], [], [], []
    for item in sorted(items, key=lambda each: canonicalize_name(each.name)):
        key = canonicalize_name(item.name)
        change = Change(
            distribution=item.name,
            before=environment.versions.get(key),
            after=item.version,
            source=without_credentials(item.url),
            needs_restart=key in environment.shared and key in environment.installed,
        )
        if item.is_file:
            path = item.path(folder)
            digest = hash_of(path)
            # pip reads only a file's metadata for its report, so it may not have checked the file itself.
            if item.announced is not None and digest != f"sha256:{item.announced}":
                announced = f"sha256:{item.announced} was announced"
                raise CommandError(f"{path.name} has the hash {digest}, but {announced}: it was replaced.")
            attested(path)
            if path.suffix == ".whl":
                verify_wheel(path)
                wheels.append(str(path))
            else:
                builds.append(f"{path.as_uri()}{item.fragment}")
            change = replace(change, file=path.name, sha256=digest.removeprefix("sha256:"))
            pins.append(f"{item.requirement} --hash={digest}")
        else:
            attested(folder / item.name)
            sources.append(item.requirement)
        changes.append(change)
    if builds or sources:  # pip builds them again: it would record a wheel of ours as their origin
        pip.run(["wheel", "--no-deps", "--wheel-dir", str(folder / "built"), *where, *builds, *sources], tell)
    brought = Environment(metadata.distributions(path=[*wheels, *map(str, folder.glob("built/*"))]))
    refuse_not_allowed(context, ((each.distribution, each.after) for each in changes), brought)
    refuse_overwriting(brought.installed, environment.installed)  # early, since a dry run goes no further
    calls = []
    exactly = ("install", "--no-deps", "--force-reinstall", *where)
    if pins:
        file = folder / "planned.txt"
        file.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        calls.append((*exactly, "--require-hashes", "-r", str(file)))
    if sources:
        calls.append((*exactly, *sources))
    unasked = frozenset(canonicalize_name(each.name) for each in items if not each.is_asked)
    return Plan(changes=tuple(changes), calls=tuple(calls), wheels=brought.installed, unasked=unasked)


def _with_advice(error: pip.PipError, options: Sequence[str]) -> pip.PipError:
    if "--require-hashes" in options:
        return error
    advice = [str(error)]
    if "--no-index" in options:
        advice.append(
            "No index was named, so only folders were searched. Name an index (--index-url) or folder (--find-links)."
        )
    if isinstance(error, pip.NotFound):
        advice.append("Only wheels are used: build one (pip wheel), or name a source distribution by its path.")
    return pip.PipError("\n".join(advice))
