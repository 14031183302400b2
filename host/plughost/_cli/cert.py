"""`plughost cert`: make, show and export the certificate that the HTTPS listeners show.

Each works without a host that runs, and whatever state the plugins are in.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table

from plughost._api.errors import CertificateError, NotRunning
from plughost._cli.options import config_option, console, group_config_option, json_option, print_json, text
from plughost._runtime.control import send_command
from plughost._tls.certificates import certificate_in_use, describe, public_pem, tls_folder
from plughost._tls.self_signed import ensure_self_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plughost._api.host import CertificateInfo
    from plughost._settings.sources import Settings

_data_dir_option: Final[Callable[[Any], Any]] = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="The host's data folder, in place of the one of the settings.",
)


@click.group()
@group_config_option
def cert() -> None:
    """Make, show and export the TLS certificate."""


@cert.command()
@config_option
@_data_dir_option
@click.option("--name", "names", multiple=True, help="A further host name or IP address that it is valid for.")
@click.option("--force", is_flag=True, help="Make a new one even if the present one will do.")
def create(settings: Settings, data_dir: Path | None, names: tuple[str, ...], force: bool) -> None:
    """Make the development certificate, or renew it.

    It is valid for localhost, 127.0.0.1, ::1, the names under [tls] and those given here.
    """
    with _readable_errors():
        for line in create_certificate(_with_data_dir(settings, data_dir), names, force=force):
            click.echo(line)


@cert.command()
@config_option
@_data_dir_option
@json_option
def show(settings: Settings, data_dir: Path | None, as_json: bool) -> None:
    """Show the certificate that the settings name: whom it is for, how long it lasts, where it lies.

    It says so where a running host still shows another one.
    """
    settings = _with_data_dir(settings, data_dir)
    with _readable_errors():
        info = describe(*certificate_in_use(settings))
    try:
        shown = send_command(settings.data_dir, "status").get("certificate")
    except NotRunning:
        shown = None
    served = shown["sha256"] == info.sha256 if shown else None
    if as_json:
        print_json({**as_plain(info), "served": served})
        return
    console().print(as_table(info))
    if shown and not served:
        click.echo(
            f"The running host shows another one, until {shown['not_after'][:10]}: plughost reload takes this up."
        )


@cert.command()
@config_option
@_data_dir_option
@click.argument("file", default="-", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
def export(settings: Settings, data_dir: Path | None, file: Path) -> None:
    """Write the certificate, never its key, as PEM to FILE or standard output.

    Clients verify the server with it: `curl --cacert FILE https://localhost:8443/`.
    """
    with _readable_errors():
        pem = public_pem(*certificate_in_use(_with_data_dir(settings, data_dir)))
        if str(file) == "-":
            click.echo(pem, nl=False)
        else:
            file.write_bytes(pem)
            click.echo(f"Wrote {file}; try `curl --cacert {file} https://localhost:8443/`", err=True)


def create_certificate(settings: Settings, names: Sequence[str] = (), *, force: bool = False) -> Iterator[str]:
    """Make the development certificate where none is usable, and yield lines about it.

    Raises:
        CertificateError: A name is none, or the folder cannot be written.
    """
    tls = settings.host.tls
    files = ensure_self_signed(tls_folder(settings), [*tls.names, *names], force=force)
    info = describe(files)
    yield from (f"Warning: {warning}" for warning in files.warnings)
    yield f"{'Made' if files.made else 'Already there:'} {info.path}"
    yield f"  for    {', '.join(info.names)}"
    yield f"  until  {info.not_after:%Y-%m-%d}, {info.days_left} days"
    yield f"  key    {files.key}"
    if set(names) - set(tls.names):
        yield "Put the names under [tls] too (`names = [...]`), or the next start makes it anew without them."
    if tls.certificate or tls.pkcs12:
        yield f"The listeners don't show it: [tls] sets {tls.certificate or tls.pkcs12}."


def as_plain(info: CertificateInfo) -> dict[str, Any]:
    """Return what a certificate says as JSON has it: times in ISO 8601, the path as a string."""
    times = {"not_before": info.not_before.isoformat(), "not_after": info.not_after.isoformat()}
    return {**dataclasses.asdict(info), **times, "path": str(info.path)}


def as_table(info: CertificateInfo) -> Table:
    """Return what a certificate says as a table of two columns."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    left = f"{info.days_left} days left" if info.days_left >= 0 else "expired"
    for label, value in (
        ("subject", info.subject),
        ("issuer", f"{info.issuer} (self-signed)" if info.self_signed else info.issuer),
        ("names", ", ".join(info.names)),
        ("valid from", f"{info.not_before:%Y-%m-%d %H:%M} UTC"),
        ("valid until", f"{info.not_after:%Y-%m-%d %H:%M} UTC, {left}"),
        ("key", info.key_type),
        ("SHA-256", info.sha256),
        ("file", str(info.path)),
    ):
        table.add_row(label, text(value))
    return table


def _with_data_dir(settings: Settings, data_dir: Path | None) -> Settings:
    if data_dir is None:
        return settings
    host = settings.host.model_copy(update={"data_dir": data_dir.absolute()})
    return dataclasses.replace(settings, host=host)


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Turn what the operator can mend into one message and exit code 1."""
    try:
        yield
    except CertificateError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
