"""Commands of plugins: errors that their user can mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.cli.conftest import STORE_PLUGIN

if TYPE_CHECKING:
    from tests.cli.conftest import Line

FAILING: Final = """
import click
from plughost import CommandError
from plughost.stores import Session


@click.command()
@click.pass_obj
def ask(context):
    context.query_host("size")


@click.command()
def refuse():
    raise CommandError("There is nothing to do.")


@click.command()
@click.pass_obj
def count(context):
    context.stores["failing"].read(lambda db: db.session.rows("SELECT 1"))


@click.command()
def stumble():
    raise KeyError("a defect")


@hookimpl
def register_commands():
    return [ask, refuse, count, stumble]
"""


@pytest.fixture(autouse=True)
def plugin(line: Line) -> None:
    """Install the plugin, with a store that is out of reach."""
    steps = line.packages / "failing" / "postgresql"
    steps.mkdir(parents=True)
    (steps / "0001_first.sql").write_text("CREATE TABLE failing (id BIGINT PRIMARY KEY);")
    line.install("failing", STORE_PLUGIN.replace("NAME", "failing") + FAILING)
    line.configure("[stores]\nurl = 'postgresql://postgres@127.0.0.1:1/none'")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ask", "Error: No host is running on the data folder "),
        ("refuse", "Error: There is nothing to do.\n"),
        ("count", "Error: store failing: connection to server at "),
    ],
)
def test_an_error_that_the_user_can_mend_is_one_sentence(line: Line, command: str, message: str) -> None:
    """No host runs, the command refuses, or its database is out of reach: no traceback, and the exit code is 1."""
    result = line.run("failing", command)
    assert (result.exit_code, result.stderr.startswith(message)) == (1, True)


def test_a_defect_of_a_command_keeps_its_traceback(line: Line) -> None:
    """Whoever mends it needs to see where it is."""
    assert isinstance(line.run("failing", "stumble").exception, KeyError)


def test_a_hook_that_raises_is_explained(line: Line) -> None:
    """The plugin serves; the command that its error names shows the traceback."""
    line.install("raising", "from plughost import hookimpl\n@hookimpl\ndef register_commands():\n    {}['x']\n")
    refused = line.run("raising", "x").stderr
    assert "register_commands: KeyError at cli_raising.py:4" in refused
    assert "shown by `plughost plugins --why raising`" in refused
    explained = line.run("plugins", "--why", "raising")
    assert (explained.exit_code, "Its commands can't be called." in explained.output) == (0, True)
    assert "Traceback (most recent call last)" in explained.output


def test_settings_that_are_refused_are_named(line: Line) -> None:
    """A command of a plugin with a store needs its settings first."""
    line.configure("[plugins.failing]\nunknown = 1")
    result = line.run("failing", "count")
    assert result.exit_code == 1
    assert "plugins.failing" in result.stderr
