"""Commands that show a host: their output for people and programs, and their exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.cli.conftest import Line

COMMANDS = """
import click
from plughost import hookimpl


@click.command()
@click.pass_obj
def greet(context):
    click.echo(f"hello from {context.plugin} in {context.data_dir.name}")


@hookimpl
def register_commands():
    return [greet]
"""
BROKEN = "raise RuntimeError('broken on purpose')"
SECRETS = """
from pydantic import BaseModel, SecretStr
from plughost import hookimpl


class Settings(BaseModel):
    token: SecretStr = SecretStr("")


@hookimpl
def register_settings():
    return Settings
"""


def test_plugins_lists_each_with_its_state(line: Line) -> None:
    """The table has each plugin; a failure is explained below it, and the exit code is 1."""
    line.install("good")
    line.install("bad", BROKEN)
    line.install("needy", requires=("cli-bad",))
    result = line.run("plugins")
    assert result.exit_code == 1
    assert "bad (cli-bad 1.0) is failed.\n  import: RuntimeError at cli_bad.py:1: broken on purpose." in result.output
    assert "needy (cli-needy 1.0) is blocked." in result.output
    assert "The traceback is in the log, or shown by `plughost plugins --why bad`;" in result.output
    assert "Traceback (most recent call last)" in line.run("plugins", "--why", "bad").output
    states = {row.split()[0]: row.split()[3] for row in result.output.splitlines()[1:4]}
    assert states == {"good": "active", "bad": "failed", "needy": "blocked"}


def test_plugins_as_json_keeps_its_shape(line: Line) -> None:
    """Programs find the same members for each plugin, whatever its state."""
    line.install("good")
    line.install("bad", BROKEN)
    report = {each["name"]: each for each in json.loads(line.run("plugins", "--json").output)}
    assert report["good"] == {
        "name": "good",
        "distribution": "cli-good",
        "version": "1.0",
        "state": "active",
        "reason": None,
        "stage": None,
        "hooks": ["register_routes"],
        "sites": ["main"],
        "prefixes": ["/good"],
        "requires": [],
    }
    assert report["bad"].keys() == report["good"].keys()
    assert (report["bad"]["state"], report["bad"]["stage"]) == ("failed", "import")


def test_without_and_disabled_are_not_imported(line: Line) -> None:
    """A skipped plugin is listed as disabled, is no failure, and its code never runs."""
    line.install("bad", BROKEN)
    line.install("worse", BROKEN)
    line.configure("disabled = ['worse']")
    result = line.run("plugins", "--without", "bad", "--json")
    assert result.exit_code == 0
    assert [each["state"] for each in json.loads(result.output)] == ["disabled", "disabled"]


def test_the_lack_of_plugins_is_reported(line: Line) -> None:
    """If no plugin is installed, the commands say so and what to do."""
    assert "No plugin is installed. Install one:" in line.run("plugins").output
    assert line.run("routes").output == "No route is mounted.\n"
    assert line.run("check", "--dev").output == "0 plugins, all well.\n"


def test_routes_lists_each_method(line: Line) -> None:
    """Each method has a row; as JSON, each route has its operations."""
    line.install("good")
    assert "GET      /good  good" in line.run("routes").output
    assert json.loads(line.run("routes", "--json").output) == [
        {"site": "main", "path": "/good", "plugin": "good", "versions": [], "operations": {"GET": "Say"}}
    ]


def test_settings_are_shown_with_sources_and_masked_secrets(line: Line) -> None:
    """Each value has its source; a secret is masked in both forms."""
    line.install("secretive", SECRETS)
    line.configure("grace_time = 5\n[plugins.secretive]\ntoken = 'hunter2'")
    report = {each["key"]: each for each in json.loads(line.run("settings", "--json").output)}
    grace = report["grace_time"]
    assert (grace["value"], grace["default"], grace["source"]) == (5.0, 30.0, "plughost.toml")
    assert grace["description"].startswith("Seconds ")
    assert report["plugins.secretive.token"]["source"] == "plughost.toml"
    assert "hunter2" not in json.dumps(report) + line.run("settings").output


@pytest.mark.parametrize("command", ["plugins", "routes", "settings", "check", "reload"])
def test_unusable_settings_are_exit_code_2(line: Line, command: str) -> None:
    """Every problem is a line on standard error, without a traceback."""
    line.configure("adress = 1\ngrace_time = -1")
    result = line.run(command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: plughost.toml: ")
    assert len(result.stderr.splitlines()) == 2


def test_a_missing_settings_file_is_reported(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 2; the message names the file, and `--config` or the variable that named it."""
    result = line.run("plugins", "--config", "ghost.toml")
    assert (result.exit_code, "ghost.toml: there is no such file" in result.stderr) == (2, True)
    assert "leave --config out" in result.stderr
    monkeypatch.setenv("PLUGHOST_CONFIG", "ghost.toml")
    result = line.run("plugins")
    assert result.exit_code == 2
    assert "PLUGHOST_CONFIG: ghost.toml: there is no such file; create it, or unset the variable" in result.stderr


def test_check_finds_all_problems_without_opening_a_port(line: Line) -> None:
    """Every broken plugin is a problem, and so is the certificate; the exit code is 1, or 0 without problems."""
    line.install("good")
    assert line.run("check", "--dev").output == "1 plugin, all well.\n"
    assert "certificate" in line.run("check").output
    line.install("bad", BROKEN)
    line.install("worse", "import nothing_of_that_name")
    line.install("clash", "from cli_good import register_routes")
    result = line.run("check", "--dev")
    assert result.exit_code == 1
    assert len([row for row in result.output.splitlines() if row.startswith("problem: ")]) == 3
    assert result.output.endswith("Plugins without problems: 1 of 4.\n")
    report = json.loads(line.run("check", "--dev", "--json").output)
    assert (report["ok"], len(report["problems"]), report["warnings"]) == (False, 3, [])
    line.configure('disabled = ["worse"]')
    assert line.run("check", "--dev").output.endswith("Plugins without problems: 1 of 3.\n")


def test_check_finds_a_data_folder_that_a_start_cannot_use(line: Line) -> None:
    """The check doesn't create the folder; only the host itself needs it."""
    line.install("good")
    line.configure('data_dir = "plughost.toml/data"')
    result = line.run("check", "--dev")
    assert result.exit_code == 1
    assert "plughost.toml is no folder; set another data_dir." in " ".join(result.output.split())
    assert line.run("serve", "--dev").exit_code == 1


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_check_reports_each_failure_once(line: Line, strict: tuple[str, ...]) -> None:
    """A plugin that fails is one problem, also with `--strict`."""
    line.install("good")
    line.install("bad", BROKEN)
    result = line.run("check", "--dev", *strict)
    assert (result.exit_code, result.output.count("problem: ")) == (1, 1)


def test_a_start_on_a_terminal_reports_each_failure_once(line: Line) -> None:
    """The table has the reason; the log adds the traceback, if there is one."""
    line.install("bad", BROKEN)
    line.install("wrong")
    line.configure("[plugins.wrong]\ncolour = 1")
    shown = "\n".join(line.on_terminal(200, "serve", "--dev", "--strict"))
    assert shown.count("plugin does not serve") == shown.count("Traceback") == 1
    assert shown.count("colour") == 1
    assert "reason=" not in shown


@pytest.mark.parametrize("command", ["status", "reload"])
def test_a_command_to_a_host_that_does_not_run_fails(line: Line, command: str) -> None:
    """The exit code is 1, and the message says what to do."""
    result = line.run(command)
    assert result.exit_code == 1
    assert "No host is running on the data folder" in result.stderr
    assert "plughost serve" in result.stderr


def test_a_plugin_adds_commands(line: Line) -> None:
    """They are below the plugin's name, and receive its context."""
    line.install("greeter", COMMANDS)
    assert "greeter" in line.run("--help").output
    assert line.run("greeter", "greet").output == "hello from greeter in greeter\n"


def test_a_broken_plugin_breaks_no_command_but_its_own(line: Line) -> None:
    """The help and other plugins' commands work; its own name explains the failure."""
    line.install("bad", BROKEN)
    line.install("greeter", COMMANDS)
    line.install("liar", "from plughost import hookimpl\n@hookimpl\ndef register_commands():\n    return 7\n")
    line.install("exits", "raise SystemExit(3)")
    assert line.run("--help").exit_code == 0
    assert line.run("greeter", "greet").exit_code == 0
    for name in ("bad", "liar", "exits"):
        result = line.run(name, "anything", "--at-all")
        assert (result.exit_code, f"{name} (cli-{name} 1.0): " in result.stderr) == (1, True)
    line.install("mute", "from plughost import hookimpl\n@hookimpl\ndef register_commands():\n    return [print]\n")
    message = "register_commands: it returned a builtin_function_or_method. Return a list of Command."
    assert line.run("mute").stderr == f"Error: mute (cli-mute 1.0): {message}\n"


NAMED = """
import click
from plughost import hookimpl
@hookimpl
def register_commands():
    return [click.Command(name) for name in {names!r}]
"""


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([None], "no command can be called None. Name it by one word."),
        (["two words"], "no command can be called 'two words'. Name it by one word."),
        (["greet", "greet"], "it returned two commands called greet. Give one of them another name."),
    ],
)
def test_commands_that_cannot_be_called_are_reported(line: Line, names: list[str | None], message: str) -> None:
    """A call fails, and `check` has a warning, since the plugin serves."""
    line.install("named", NAMED.format(names=names))
    assert line.run("named", "greet").stderr == f"Error: named (cli-named 1.0): register_commands: {message}\n"
    checked = line.run("check", "--dev")
    assert (checked.exit_code, checked.stdout) == (
        0,
        f"warning: the commands of named (cli-named 1.0): register_commands: {message}\n1 plugin, all well.\n",
    )


def test_an_async_hook_is_reported_without_a_warning_of_python(line: Line) -> None:
    """A plugin with an async hook for its commands fails in one line."""
    line.install("later", "from plughost import hookimpl\n@hookimpl\nasync def register_commands():\n    return []\n")
    result = line.run("later")
    assert result.exit_code == 1
    message = "import: its hook register_commands is async, and hooks are called without an event loop. Use plain def."
    assert result.stderr == f"Error: later (cli-later 1.0): {message}\n"


def test_the_help_imports_no_disabled_plugin(line: Line) -> None:
    """`plughost --help` loads plugins for their commands, except those that the settings disable."""
    line.install("bad", "import pathlib; pathlib.Path('imported').touch()\nraise RuntimeError")
    line.configure("disabled = ['bad']")
    assert line.run("--help").exit_code == 0
    assert not (line.folder / "imported").exists()


def test_a_plugin_with_the_name_of_a_command_is_reported(line: Line) -> None:
    """The command stays the host's, and the plugin fails with the reason."""
    line.install("plugins", COMMANDS)
    result = line.run("plugins")
    assert result.exit_code == 1
    assert "`plughost plugins` is a command of the host" in result.output


def test_an_unknown_command_is_exit_code_2(line: Line) -> None:
    """A word that is neither a command nor a plugin is a mistake on the command line."""
    assert line.run("ghost").exit_code == 2


def test_the_settings_of_a_plugin_that_failed_are_unknown(line: Line) -> None:
    """`settings` says so for such a plugin, instead of that it has none."""
    line.install("broken", "raise RuntimeError('broken')\n")
    result = line.run("settings", "plugins.broken.word")
    assert result.exit_code == 1
    assert "broken is failed, so its settings are unknown: plughost plugins --why broken" in result.stderr


def test_hidden_settings_are_reported(line: Line) -> None:
    """Each plugin that doesn't serve and may have settings has a line on standard error of the complete list."""
    line.install("bad", BROKEN)
    line.install("needy", requires=("cli-bad",))
    line.install("wrong", SECRETS)
    line.install("plain", "from plughost import hookimpl\n@hookimpl\ndef register_pages(context):\n    1 / 0\n")
    line.configure('[plugins.wrong]\ntokn = "x"')
    mistake = "plughost.toml: plugins.wrong.tokn: unknown key; did you mean token?"
    warnings = line.run("settings").stderr.splitlines()
    assert [row for row in warnings if "settings are not shown" in row] == [
        "warning: bad is failed, so its settings are not shown: RuntimeError at cli_bad.py:1: broken on purpose",
        f"warning: wrong is failed, so its settings are not shown: {mistake}",
        "warning: needy is blocked, so its settings are not shown: it requires bad (cli-bad 1.0), which is failed",
    ]
    assert "bad is failed" in line.run("settings", "plugins").stderr
    assert "bad is failed" not in line.run("settings", "grace_time").stderr


@pytest.mark.parametrize("command", ["plugins", "routes", "settings", "doctor"])
def test_only_commands_that_start_a_host_accept_strict(line: Line, command: str) -> None:
    """For any other, `--strict` before or after the command is exit code 2."""
    for arguments in ((command, "--strict"), ("--strict", command)):
        result = line.run(*arguments)
        assert (result.exit_code, "No such option '--strict'" in result.stderr) == (2, True)


def test_the_package_can_be_run_as_the_command() -> None:
    """`python -m plughost` is the same as `plughost`, also in its help."""
    printed = subprocess.check_output([sys.executable, "-m", "plughost", "status", "--help"], text=True)
    assert printed.startswith("Usage: plughost status [OPTIONS]")


def test_the_help_of_a_group_has_whole_sentences(line: Line) -> None:
    """A command's description is not cut off with dots."""
    message = "Greet everybody who was there at the time, in the language that they were asked for."
    line.install("greeter", COMMANDS.replace("greet(context):\n", f'greet(context):\n    """{message}"""\n'))
    for group in ("cert", "greeter", "stores"):
        assert "..." not in line.run(group, "--help").output.partition("Commands:")[2]
    assert message.removesuffix(".") in " ".join(line.run("greeter", "--help").output.split())


def test_a_command_to_the_host_imports_no_server() -> None:
    """Without need for plugins, it imports no web framework, database layer or server."""
    names = ("disable", "enable", "reload", "restart", "status")
    load = "import sys; from plughost._cli import main; [main.get_command(None, name) for name in sys.argv[1:]]"
    printed = subprocess.check_output([sys.executable, "-c", f"{load}; print(*sys.modules)", *names], text=True)
    assert not {"falcon", "granian", "limits", "pony", "structlog", "waitress"} & set(printed.split())


def test_one_port_for_two_listeners_is_reported(line: Line) -> None:
    """The reason names both listeners, and no other program, since there is none."""
    line.install("good")
    port = free_port()
    (line.folder / "plughost.toml").write_text(f"[sites.main]\nhttp_port = {port}\nhttps_port = {port}\n")
    process = line.start("serve", "--dev")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.search(rf"port {port} \(site main, https?\): site main does over https?; set another", errors)
    assert "another program" not in errors
