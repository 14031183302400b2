"""The commands below `plughost library-auth`; each gets the plugin's context as its object."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from plughost_library_auth.keyring import KeyFileError, KeyRing
from plughost_library_auth.users import hash_password

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost_library_auth.settings import Settings


@click.command("hash-password")
@click.pass_obj
def hash_password_command(context: PluginContext[Settings]) -> None:
    """Print the bcrypt hash of a password, for `password_hash` in the settings.

    On a terminal, the command asks twice, without echo. Otherwise it reads one line from standard input.
    """
    click.echo(read_hash(context.settings.bcrypt_rounds))


@click.command("rotate-key")
@click.pass_obj
def rotate_key_command(context: PluginContext[Settings]) -> None:
    """Create a new signing key; tokens of the old keys stay valid until they expire.

    A running host signs with the new key from the next login on, without a restart.
    """
    settings = context.settings
    try:
        keys = KeyRing(context.data_dir, algorithm=settings.algorithm, lifetime=settings.token_lifetime)
        new = keys.rotate()
    except OSError as error:
        message = f"the signing keys in {context.data_dir} can't be written: {error.strerror}"
        raise click.ClickException(message) from None
    except KeyFileError as error:
        raise click.ClickException(str(error)) from None
    context.audit("key rotation", "ok", key=new.kid)
    click.echo(f"{new.kid} ({new.algorithm}) signs from now on.")
    for key in keys.public_keys():
        if key.retired is not None:
            until = datetime.fromtimestamp(key.verifies_until, UTC)
            click.echo(f"{key.kid} ({key.algorithm}) verifies until {until:%Y-%m-%d %H:%M:%S} UTC.")


def read_hash(rounds: int) -> str:
    """Read a password, never from arguments, which other users of the machine can see. Return its bcrypt hash."""
    try:
        return hash_password(_read(), rounds)
    except UnicodeError:
        raise click.ClickException("the password is not UTF-8") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _read() -> str:
    if sys.stdin.isatty():
        # The prompt goes to standard error, so that standard output has only the result.
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")
