"""Passwords that commands ask for: never an argument, which others on the machine could read."""

from __future__ import annotations

import sys

import click

from plughost_library_auth.users import hash_password


def read_hash(rounds: int) -> str:
    """Return the bcrypt hash of a password.

    A terminal is asked twice and shows nothing of what is typed; elsewhere one line of standard input is read.

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
        # On standard error, so that the output is what the command prints and nothing else.
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")
