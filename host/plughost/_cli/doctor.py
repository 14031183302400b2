"""`plughost doctor`: check what operators forget, and say what to do.

`plughost check` says whether all plugins would serve; this checks the machine and the setup around them.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from rich.filesize import decimal
from rich.text import Text

from plughost._api.errors import CertificateError, NotRunning
from plughost._backups import last_backups
from plughost._cli.options import (
    EXIT_PROBLEMS,
    config_option,
    console,
    format_days_left,
    format_duration,
    host_options,
    json_option,
    plain_table,
    preview_generation,
    print_json,
)
from plughost._plugins.environment import HOST, Environment
from plughost._runtime.control import NotPermitted, data_dir_problem, send_command
from plughost._runtime.sites import exposed_addresses, has_https, listeners_of
from plughost._settings.masking import MASK
from plughost._settings.sources import leaves
from plughost._tls.certificates import certificate_in_use, describe, prepare
from plughost._tls.keypairs import RENEW_BEFORE
from plughost.stores import StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from plughost._runtime.generation import Generation
    from plughost._settings.sources import Settings

_MIN_FREE_BYTES: Final = 1 << 30
_MAX_BACKUP_AGE: Final = timedelta(days=7)
_URL_PASSWORD: Final = re.compile(r"://[^/@]*:[^/@]+@|password=")
_SPARE_FILES: Final = 256  # beside connections: stores, logs, modules
_STYLES: Final = {"good": "green", "advice": "yellow", "problem": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check, and what to do about it. `advice` may be ignored if the state is intended."""

    about: str
    verdict: Literal["good", "advice", "problem"]
    found: str
    todo: str = ""


@click.command()
@json_option
@host_options
@config_option
def doctor(settings: Settings, dev: bool, without: Collection[str], as_json: bool) -> None:
    """Check this system for potential problems, and say what to do about them.

    Limits, clock, certificate, disk, versions, proxies, permissions, databases, Redis and backups are checked, and what
    troubles the running host. Exit code 1 if there is a problem. You can ignore advice if the state is intended. If a
    host runs in development mode, --dev is implied. `plughost check` tests whether every plugin would serve.
    """
    running = _ask_host(settings.data_dir)
    dev = dev or (not isinstance(running, NotRunning) and bool(running.get("dev")))
    generation = preview_generation(settings, without, dev=dev)
    findings = [
        *_check_open_files(settings, generation),
        *_check_clock(),
        *_check_certificate(settings, generation, dev=dev),
        *_check_disk(settings.data_dir),
        *_check_versions(running),
        *_check_running(running),
        *_check_proxies(settings),
        *(Finding("settings", "problem", each) for each in generation.problems),
        *(_advise("settings", each) for each in generation.warnings),
        *_check_permissions(settings, generation),
        *_check_services(generation),
        *_check_backups(settings, generation),
    ]
    if as_json:
        print_json([asdict(each) for each in findings])
    else:
        table = plain_table()
        for each in findings:
            text = Text(each.found)
            if each.todo:
                text.append(f"\n{each.todo}", style=_STYLES[each.verdict])
            table.add_row(Text(each.verdict, style=_STYLES[each.verdict]), each.about, text)
        console().print(table)
    if any(each.verdict == "problem" for each in findings):
        raise SystemExit(EXIT_PROBLEMS)


def _ask_host(data_dir: Path) -> Mapping[str, Any] | NotRunning:
    """Return the status of the host that runs on a data folder, or why there is none."""
    try:
        return send_command(data_dir, "status")
    except NotRunning as error:
        return error


def _check_open_files(settings: Settings, generation: Generation) -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sites = settings.host.sites
    wanted = _SPARE_FILES + sum(
        getattr(sites, site).connection_limit for site in generation.sites for _ in listeners_of(site, settings)
    )
    if hard != resource.RLIM_INFINITY and hard < wanted:
        todo = f"Set LimitNOFILE={wanted} in the unit, or `ulimit -n {wanted}`, or lower sites.<site>.connection_limit."
        yield Finding("open files", "advice", f"{hard} allowed, {wanted} with every connection_limit reached", todo)
    else:
        yield Finding("open files", "good", f"{hard} allowed, {wanted} needed at most")


def _check_clock() -> Iterator[Finding]:
    now, built = datetime.now(UTC), datetime.fromtimestamp(os.stat(__file__).st_mtime, UTC)  # noqa: PTH116 - of this file
    if now < built - timedelta(days=1):
        yield Finding("clock", "problem", f"it says {now:%Y-%m-%d %H:%M} UTC, before plughost was installed", "Set it.")
        return
    timedatectl = shutil.which("timedatectl")
    result = timedatectl and subprocess.run(  # noqa: S603 - a fixed command  # nosec B603
        [timedatectl, "show", "--property=NTPSynchronized", "--value"], capture_output=True, text=True, check=False
    )
    if result and result.stdout.strip() == "no":
        todo = "Tokens and certificates depend on it. Enable NTP: timedatectl set-ntp true"
        yield Finding("clock", "advice", "not synchronized by NTP", todo)
    else:
        is_synchronized = result and result.stdout.strip() == "yes"
        known = "synchronized by NTP" if is_synchronized else "synchronization unknown"
        yield Finding("clock", "good", f"{now:%Y-%m-%d %H:%M} UTC, {known}")


def _check_certificate(settings: Settings, generation: Generation, *, dev: bool) -> Iterator[Finding]:
    if not has_https(generation.sites, settings):
        if settings.host.trusted_proxies:
            yield Finding("certificate", "good", "not needed: a trusted proxy terminates TLS")
        else:
            todo = "Terminate TLS at a proxy that trusted_proxies names, or add an HTTPS listener."
            yield Finding("certificate", "advice", "no listener has HTTPS", todo)
        return
    tls = settings.host.tls
    is_own = bool(tls.certificate or tls.key or tls.pkcs12)
    is_generated = not is_own and (dev or tls.self_signed)
    if not (is_generated or is_own):  # a certificate generated earlier isn't served
        todo = "Set certificate and key under [tls], or self_signed = true to generate one."
        yield Finding("certificate", "problem", "HTTPS needs one, but none is set", todo)
        return
    try:
        prepared = prepare(settings, dev=dev) if is_own else None
        info = describe(prepared) if prepared else describe(*certificate_in_use(settings))
    except CertificateError as error:
        found = "none yet; the next start creates one" if is_generated else str(error)
        yield Finding("certificate", "good" if is_generated else "problem", found)
        return
    now, names = datetime.now(UTC), ", ".join(info.names)
    if now < info.not_before:
        found = f"not valid before {info.not_before:%Y-%m-%d}, for {names}"
    else:
        found = f"until {info.not_after:%Y-%m-%d}, {format_days_left(info.days_left)}, for {names}"
    if prepared and prepared.warnings:
        yield from (_advise("certificate", each) for each in prepared.warnings)
    elif is_generated and not info.not_before <= now < info.not_after - RENEW_BEFORE:
        is_valid = info.not_before <= now < info.not_after
        todo = "The next start or `plughost reload` makes a new one."
        yield Finding("certificate", "advice" if is_valid else "problem", found, todo)
    elif info.self_signed and not dev:
        yield Finding(
            "certificate", "advice", f"self-signed, {found}", "Clients must trust it. Or get one from an authority."
        )
    else:
        yield Finding("certificate", "good", found)


def _advise(about: str, warning: str) -> Finding:
    """Return a warning as advice: what follows its semicolon is what to do."""
    found, _, todo = warning.partition("; ")
    stop = "" if not todo or todo.endswith("?") else "."
    return Finding(about, "advice", found, f"{todo[:1].upper()}{todo[1:]}{stop}")


def _check_disk(data_dir: Path) -> Iterator[Finding]:
    folder = next(each for each in (data_dir, *data_dir.parents) if each.is_dir())
    free = shutil.disk_usage(folder).free
    good = free >= _MIN_FREE_BYTES
    todo = "" if good else "Free some space: requests to a store that can't be written get 503."
    yield Finding("disk", "good" if good else "advice", f"{decimal(free)} free at {folder}", todo)
    if (why := data_dir_problem(data_dir)) is not None:
        found, _, todo = why.partition("; ")
        yield Finding("data folder", "problem", found, todo.capitalize())


def _check_versions(running: Mapping[str, Any] | NotRunning) -> Iterator[Finding]:
    environment = Environment()
    installed = environment.versions.get(HOST, "unknown")
    yield Finding("versions", "good", f"Python {sys.version.split()[0]}, {HOST} {installed}")
    for plugin in environment.plugins:
        if plugin.unmet is not None:
            todo = "Install what it requires: `python -m pip check` lists all."
            yield Finding("versions", "problem", f"{plugin.label}: {plugin.unmet}", todo)
    for warning in environment.warnings:
        yield Finding("versions", "advice", warning, "Remove what is left of it, or install it again.")
    if isinstance(running, NotPermitted):
        yield Finding("running host", "advice", "this user can't see whether one runs", "Run this as the host's user.")
    elif isinstance(running, NotRunning):
        yield Finding("running host", "good", "none on this data folder")
    elif running.get("version") != installed:
        found = f"version {running.get('version')} runs, {installed} is installed"
        yield Finding("running host", "advice", found, "Run: plughost restart")
    else:
        mode = ", development mode" if running["dev"] else ""
        found = f"process {running['pid']}{mode}, up {format_duration(running['uptime_seconds'])}"
        yield Finding("running host", "good", found)


def _check_running(running: Mapping[str, Any] | NotRunning) -> Iterator[Finding]:
    """Report what the running host has to say of its plugins, such as a store that can't be used."""
    plugins = () if isinstance(running, NotRunning) else running["plugins"]
    for name, trouble in ((each["name"], trouble) for each in plugins for trouble in each["trouble"]):
        yield Finding("running host", "problem", f"{name}: {trouble}", "The host's log says more.")


def _check_proxies(settings: Settings) -> Iterator[Finding]:
    exposed, proxies = exposed_addresses(settings), settings.host.trusted_proxies
    if any(network.prefixlen == 0 for network in proxies):
        todo = "Name only the proxies' addresses. Now anybody can pose as any client."
        yield Finding("proxies", "problem", "trusted_proxies trusts every address", todo)
    elif exposed and not proxies:
        todo = "If there is a proxy, name it in trusted_proxies: otherwise limits count all its clients as one."
        yield Finding("proxies", "advice", f"reachable from elsewhere ({', '.join(exposed)}), none is trusted", todo)
    else:
        yield Finding("proxies", "good", f"{len(proxies)} trusted" if proxies else "reachable only from this machine")


def _check_permissions(settings: Settings, generation: Generation) -> Iterator[Finding]:
    file, data_dir = settings.file, settings.data_dir
    modes = {each: each.stat().st_mode for each in (file, data_dir) if each is not None and each.exists()}
    for each, mode in modes.items():
        if mode & 0o002:
            yield Finding("permissions", "problem", f"{each} is writable by everybody", f"chmod o-w {each}")
    if data_dir in modes and (others := _files_of_others(data_dir)):
        found = f"{', '.join(map(str, others[:3]))}{' and more' if len(others) > 3 else ''}: not of {data_dir}'s owner"
        todo = f"If the host can't use it, give it to its user: chown -R --reference={data_dir} {data_dir}"
        yield Finding("permissions", "advice", found, todo)
    if file is None or modes.get(file, 0) & 0o006 != 0o004 or not file.absolute().parent.stat().st_mode & 0o001:
        return
    if secrets := _find_secrets(file, settings, generation):
        found = f"{file} contains secrets ({', '.join(secrets)}), and everybody can read it"
        host = (data_dir if data_dir in modes else file).stat()
        todo = f"Make it readable only by root and the host's group: chgrp {host.st_gid} {file} && chmod 640 {file}"
        if file.stat().st_uid == host.st_uid:
            todo = f"Make it readable only by the host's user: chmod 600 {file}"
        yield Finding("permissions", "advice", found, todo)


def _files_of_others(folder: Path) -> list[Path]:
    """Return the files below a folder that belong to others than its owner. Unreadable folders count as empty."""
    owner, found = folder.stat().st_uid, []
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):  # it may be removed meanwhile
            if path.lstat().st_uid != owner:
                found.append(path)
    return found


def _find_secrets(file: Path, settings: Settings, generation: Generation) -> list[str]:
    """Return the keys of the secrets in the settings file. A URL without a password is not a secret."""
    written = {".".join(path): str(value) for path, value in leaves({**settings.raw, "plugins": settings.tables})}
    secrets = [key for key, text in written.items() if "://" not in text or _URL_PASSWORD.search(text)]
    masked = [each.key for each in generation.setting_values() if each.source == file.name and MASK in str(each.value)]
    return [key for key in masked if any(f"{each}.".startswith(f"{key}.") for each in secrets)]


def _check_services(generation: Generation) -> Iterator[Finding]:
    """Check that databases and Redis answer, if other processes serve them. `plughost stores check` checks files."""
    stores = (store for store in generation.stores.values() if store.dialect == "postgresql")
    for place, database in sorted({store.database.config.place: store.database for store in stores}.items()):
        try:
            database.check()
        except StoreError as error:
            yield Finding("database", "problem", str(error), "Start it, or correct its URL under [stores].")
        else:
            yield Finding("database", "good", f"{place} answers")
    for check in generation.rate_limits.checks():
        health = check.check()
        place = str(health.data["storage"])
        if health.up:
            yield Finding("redis", "good", f"{place} answers")
        else:
            yield Finding("redis", "problem", f"{place} does not answer", "Start it, or correct rate_limits.storage.")


def _check_backups(settings: Settings, generation: Generation) -> Iterator[Finding]:
    made, now = last_backups(settings.data_dir), datetime.now(UTC)
    stores = sorted(generation.stores)
    ages = {store: now - made[store] for store in stores if store in made}
    late = [store for store in stores if store not in made or abs(ages[store]) > _MAX_BACKUP_AGE]
    if late:
        old = {
            store: f"{format_duration(age.total_seconds())} old" if age > timedelta() else f"of {made[store]:%Y-%m-%d}"
            for store, age in ages.items()
        }
        found = "; ".join(f"{store}, {old.get(store, 'none')}" for store in late)
        todo = "Run `plughost stores backup`, unless another tool makes backups."
        yield Finding("backups", "advice", f"known backups: {found}", todo)
    elif stores:
        yield Finding("backups", "good", f"none older than {format_duration(_MAX_BACKUP_AGE.total_seconds())}")
