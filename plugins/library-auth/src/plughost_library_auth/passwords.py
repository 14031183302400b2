"""Read passwords for commands, never from arguments, which other users of the machine can see."""

from __future__ import annotations

import sys

import click

from plughost_library_auth.users import hash_password


def read_hash(rounds: int) -> str:
    """Return the bcrypt hash of a password.

    At a terminal, ask twice without echo. Otherwise read one line of standard input.

    Args:
        rounds: The cost of the hash.

    Raises:
        click.ClickException: It can't be hashed; the message says why.
    """
    try:
        return hash_password(_read(), rounds)
    except UnicodeError:
        msg = "the password is not UTF-8"
        raise click.ClickException(msg) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _read() -> str:
    if sys.stdin.isatty():
        # The prompt goes to standard error, so that standard output has only the result.
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")
