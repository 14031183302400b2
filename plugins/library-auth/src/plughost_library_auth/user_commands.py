"""`plughost library-auth users`: the users of the store, beside those of the settings."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click
from pydantic import SecretStr, ValidationError

from plughost.stores import StoreError
from plughost_library_auth.commands import read_hash
from plughost_library_auth.records import STORE, Records
from plughost_library_auth.settings import User, account_key

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost_library_auth.settings import Settings

_ROLE: Final = click.Choice(("user", "admin"))


@click.group("users")
def users_group() -> None:
    """Manage the users in the store.

    Users in the settings take precedence over them.
    """


@users_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def list_command(context: PluginContext[Settings], as_json: bool) -> None:
    """List all users with role, source, last login, and name in the audit trail."""
    with _readable_errors():
        rows = list(_rows(context))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo("There are no users. Add one: plughost library-auth users add EMAIL")
        return
    table = [("user", "role", "kept in", "state", "last login (UTC)", "audit name"), *map(_cells, rows)]
    lines = _align(table)
    if sys.stdout.isatty() and max(map(len, lines)) > shutil.get_terminal_size().columns:
        left_out = "Not shown for lack of space: audit names. Use a wider terminal, or --json."
        lines = [*_align([cells[:-1] for cells in table]), left_out]
    click.echo("\n".join(lines))


@users_group.command("add")
@click.argument("email")
@click.option("--role", type=_ROLE, default="user", show_default=True, help="Role of the user.")
@click.pass_obj
def add_command(context: PluginContext[Settings], email: str, role: Any) -> None:
    """Add the user EMAIL.

    The command asks for the password, or reads it from standard input.
    """
    if _is_configured(context, email):
        raise click.ClickException(f"the user {email} is in the settings, which take precedence: change it there")
    with _readable_errors():
        try:
            hashed = SecretStr(read_hash(context.settings.bcrypt_rounds))
            user = User(email=email, password_hash=hashed, role=role)
        except ValidationError as error:
            raise click.ClickException(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
        if not _records(context).add(user):
            raise click.ClickException(f"the user {email} already exists; `users password` changes the password")
    _report(context, "user added", email, f"Added {email} with the role {role}.", role=role)


@users_group.command("password")
@click.argument("email")
@click.pass_obj
def password_command(context: PluginContext[Settings], email: str) -> None:
    """Change the password of the user EMAIL.

    The command asks for the new password, or reads it from standard input.
    """
    hashed = read_hash(context.settings.bcrypt_rounds)
    _change(context, email, password_hash=hashed, rounds=int(hashed[4:6]))
    _report(context, "user password changed", email, f"Changed the password of {email}.")


@users_group.command("role")
@click.argument("email")
@click.argument("role", type=_ROLE)
@click.pass_obj
def role_command(context: PluginContext[Settings], email: str, role: str) -> None:
    """Change the role of the user EMAIL; tokens keep the old role until they expire."""
    _change(context, email, role=role)
    _report(context, "user role changed", email, f"{email} has the role {role}.", role=role)


@users_group.command("disable")
@click.argument("email")
@click.pass_obj
def disable_command(context: PluginContext[Settings], email: str) -> None:
    """Refuse logins of the user EMAIL; tokens stay valid until they expire or are revoked."""
    _change(context, email, disabled=1)
    _report(context, "user disabled", email, f"{email} can't log in any more.")


@users_group.command("enable")
@click.argument("email")
@click.pass_obj
def enable_command(context: PluginContext[Settings], email: str) -> None:
    """Let the user EMAIL log in again."""
    _change(context, email, disabled=0)
    _report(context, "user enabled", email, f"{email} can log in again.")


def _rows(context: PluginContext[Settings]) -> Iterator[dict[str, Any]]:
    records = _records(context)
    logins = records.last_logins()
    configured = {user.key: user for user in context.settings.users}
    stored = {user.key: (user, disabled) for user, disabled in records.users()}
    for key in sorted({*configured, *stored}):
        user = configured[key] if key in configured else stored[key][0]
        yield {
            "email": user.email,
            "role": user.role,
            "kept": ", ".join(["settings"] * (key in configured) + ["store"] * (key in stored)),
            "disabled": key not in configured and stored[key][1],
            "last_login": _timestamp(logins.get(key)),
            "audit_name": context.pseudonym(key),
        }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    state = "disabled" if row["disabled"] else "enabled"
    login = (row["last_login"] or "-")[: len("2026-01-01T00:00")].replace("T", " ")
    return row["email"], row["role"], row["kept"], state, login, row["audit_name"]


def _align(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table]


def _timestamp(seconds: int | None) -> str | None:
    return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _records(context: PluginContext[Settings]) -> Records:
    return Records(context.store(STORE))


def _change(context: PluginContext[Settings], email: str, **values: Any) -> None:
    with _readable_errors():
        if not _records(context).change(email, **values):
            raise click.ClickException(f"the store has no user {email}; `users list` shows all users")


def _report(context: PluginContext[Settings], what: str, email: str, line: str, **more: Any) -> None:
    context.audit(what, "ok", who=email, **more)
    if _is_configured(context, email):
        line = f"Changed in the store, but without effect: the user {email} in the settings takes precedence."
    click.echo(line)


def _is_configured(context: PluginContext[Settings], email: str) -> bool:
    return account_key(email) in {user.key for user in context.settings.users}


@contextmanager
def _readable_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise click.ClickException(str(error)) from None
