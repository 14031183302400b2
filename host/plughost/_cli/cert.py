"""`plughost cert`: create, show and export the certificate of the HTTPS listeners.

These commands need no running host and no working plugin.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from plughost._api.errors import NotRunning
from plughost._cli.options import (
    Group,
    config_option,
    console,
    format_days_left,
    group_config_option,
    is_wide,
    json_option,
    plain_table,
    pluralize,
    print_json,
    say,
)
from plughost._runtime.control import send_command
from plughost._tls.certificates import certificate_in_use, describe, ensure_self_signed, tls_folder
from plughost._tls.keypairs import chain_pem, read_chain

if TYPE_CHECKING:
    from rich.table import Table

    from plughost._api.host import CertificateInfo
    from plughost._settings.sources import Settings

_HALF_FINGERPRINT: Final = 16 * len("AB:")


@click.group(cls=Group)
@group_config_option
def cert() -> None:
    """Create, show and export the TLS certificate."""


@cert.command()
@config_option
@click.option("--name", "names", multiple=True, help="Additional host name or IP address; repeatable.")
@click.option("--force", is_flag=True, help="Replace the certificate even if it needs no renewal.")
def create(settings: Settings, names: tuple[str, ...], force: bool) -> None:
    """Create or renew the development certificate.

    It is valid for localhost, 127.0.0.1, ::1, and the names under [tls] and in --name.
    """
    tls = settings.host.tls
    files = ensure_self_signed(tls_folder(settings), [*tls.names, *names], force=force)
    info = describe(files)
    for warning in files.warnings:
        say(f"Warning: {warning}")
    click.echo(f"{'Created' if files.made else 'Already exists:'} {info.path}")
    click.echo(f"  for    {', '.join(info.names)}")
    click.echo(f"  until  {info.not_after:%Y-%m-%d}, {pluralize(info.days_left, 'day')}")
    click.echo(f"  key    {files.key}")
    if set(names) - set(tls.names):
        say("Add the names under [tls], too (`names = [...]`). Otherwise the next start replaces it without them.")
    if tls.certificate or tls.pkcs12:
        say(f"The listeners don't use it: [tls] sets {tls.certificate or tls.pkcs12}.")


@cert.command()
@config_option
@json_option
def show(settings: Settings, as_json: bool) -> None:
    """Show the configured certificate: names, validity, key and file.

    The command also tells you if a running host still uses another one.
    """
    info = describe(*certificate_in_use(settings))
    try:
        current = send_command(settings.data_dir, "status").get("certificate")
    except NotRunning:
        current = None
    served = current["sha256"] == info.sha256 if current else None
    if as_json:
        times = {"not_before": info.not_before.isoformat(), "not_after": info.not_after.isoformat()}
        print_json({**dataclasses.asdict(info), **times, "served": served})
        return
    out = console()
    out.print(_as_table(info, wide=is_wide(out)))
    if current and not served:
        say(f"The running host still uses another one, valid until {current['not_after'][:10]}. Run `plughost reload`.")


@cert.command()
@config_option
@click.argument("file", default="-", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
def export(settings: Settings, file: Path) -> None:
    """Write the certificate without its key, as PEM, to FILE or standard output.

    Clients verify the server with it: `curl --cacert FILE https://localhost:8443/`.
    """
    pem = chain_pem(read_chain(*certificate_in_use(settings)))
    if str(file) == "-":
        click.echo(pem, nl=False)
        return
    try:
        file.write_bytes(pem)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error
    click.echo(f"Wrote {file}; try `curl --cacert {file} https://localhost:8443/`", err=True)


def _as_table(info: CertificateInfo, *, wide: bool) -> Table:
    table = plain_table()
    left = format_days_left(info.days_left)
    for label, value in (
        ("subject", info.subject),
        ("issuer", f"{info.issuer} (self-signed)" if info.self_signed else info.issuer),
        ("names", ", ".join(info.names)),
        ("valid from", f"{info.not_before:%Y-%m-%d %H:%M} UTC"),
        ("valid until", f"{info.not_after:%Y-%m-%d %H:%M} UTC, {left}"),
        ("key", info.key_type),
        ("SHA-256", info.sha256 if wide else f"{info.sha256[:_HALF_FINGERPRINT]}\n{info.sha256[_HALF_FINGERPRINT:]}"),
        ("file", str(info.path)),
    ):
        table.add_row(Text(label, style="bold"), value)
    return table
