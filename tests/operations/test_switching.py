"""`plughost enable` and `plughost disable`."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.waiting import wait_until

from plughost._api.errors import CommandError, NotRunning
from plughost._settings.editing import with_value

from .wheels import build_wheel, speaker_wheel

if TYPE_CHECKING:
    from .environments import Sandbox

_SLOW = """
import threading
from pathlib import Path

import plughost

while Path("gate").exists():
    Path("importing").touch()
    threading.Event().wait(0.01)


@plughost.hookimpl
def stopping(context):
    first = not Path("stopping").exists()
    Path("stopping").touch()
    while first and Path("hold").exists():
        threading.Event().wait(0.01)
"""


def test_a_disabled_plugin_is_gone_and_can_return(sandbox: Sandbox) -> None:
    """The running host applies both at once, and every other line of the settings stays."""
    sandbox.put(
        speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"), speaker_wheel(sandbox.wheels, "other", "1.0", "other")
    )
    settings = sandbox.folder / "plughost.toml"
    before = settings.read_text()
    with sandbox.serving() as host:
        host.get("/other")
        output = sandbox.run("disable", "greeter")
        assert "Disabling greeter." in output
        assert host.get("/greeter").status_code == 404
        assert settings.read_text().replace('disabled = ["greeter"]\n', "") == before
        assert sandbox.json("enable", "greeter")["reload"]["added"] == ["greeter"]
        assert host.get("/greeter").json()["word"] == "hello"
        assert host.get("/other").json()["count"] == 2


@pytest.mark.parametrize("command", [("install", "deadly"), ("enable", "deadly")])
def test_a_change_that_ends_the_host_is_undone(sandbox: Sandbox, command: tuple[str, str]) -> None:
    """A plugin may end its process: the command fails, and the next host serves as before."""
    deadly = "import os, sys\nif 'serve' in sys.argv:\n    os._exit(3)\n"
    wheel = build_wheel(sandbox.wheels, "plughost-deadly", "1.0", {"deadly.py": deadly}, plugins={"deadly": "deadly"})
    if command[0] == "enable":
        sandbox.put(wheel)
        sandbox.run("disable", "deadly")
    before = sandbox.files(), (sandbox.folder / "plughost.toml").read_text()
    with suppress(NotRunning), sandbox.serving() as host:
        assert "stopped before it answered" in sandbox.run(*command, code=1)
        assert host.process.wait() == 3
    assert (sandbox.files(), (sandbox.folder / "plughost.toml").read_text()) == before


def test_a_change_during_a_restart_holds_in_the_next_process(sandbox: Sandbox) -> None:
    """The next process had read the settings before, and reloads as the running one did."""
    slow = build_wheel(sandbox.wheels, "plughost-slow", "1.0", {"slow.py": _SLOW}, plugins={"slow": "slow"})
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"), slow)
    with sandbox.serving() as host, ThreadPoolExecutor() as pool:
        (sandbox.folder / "gate").touch()
        restarting = pool.submit(host.restart)
        wait_until((sandbox.folder / "importing").exists)
        sandbox.run("disable", "greeter")
        (sandbox.folder / "gate").unlink()
        restarting.result()
        assert {each["name"]: each["state"] for each in host.status()["plugins"]}["greeter"] == "disabled"


def test_a_change_that_still_drains_at_the_end_of_a_restart_holds(sandbox: Sandbox) -> None:
    """A plugin that was disabled is gone in the next process, though the running one still waits for its end."""
    sandbox.put(build_wheel(sandbox.wheels, "plughost-slow", "1.0", {"slow.py": _SLOW}, plugins={"slow": "slow"}))
    with sandbox.serving() as host, ThreadPoolExecutor() as pool:
        for name in ("gate", "hold"):
            (sandbox.folder / name).touch()
        restarting = pool.submit(sandbox.run, "restart")
        wait_until((sandbox.folder / "importing").exists)
        disabling = pool.submit(sandbox.run, "disable", "slow")
        wait_until((sandbox.folder / "stopping").exists)
        (sandbox.folder / "gate").unlink()
        restarting.result()
        (sandbox.folder / "hold").unlink()
        disabling.result()
        assert host.process.wait(60) == 0
        assert {each["name"]: each["state"] for each in host.status()["plugins"]}["slow"] == "disabled"


def test_concurrent_commands_lose_no_change(sandbox: Sandbox) -> None:
    """All plugins that four concurrent commands disable are disabled: each edits the file that the one before wrote."""
    names = ["one", "two", "three", "four"]
    sandbox.put(*(speaker_wheel(sandbox.wheels, name, "1.0", name) for name in names))
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: sandbox.run("disable", name), names))
    states = {each["name"]: each["state"] for each in sandbox.json("plugins")}
    assert states.items() >= dict.fromkeys(names, "disabled").items()


def test_a_command_that_waits_for_another_says_so(sandbox: Sandbox) -> None:
    """The other one may be suspended, and would then be waited for without end."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    descriptor = os.open(sandbox.folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with sandbox.running("disable", "greeter") as command:
        assert command.stdout is not None
        assert "Waiting for another command" in command.stdout.readline()
        os.close(descriptor)
        assert command.wait(60) == 0
    assert {each["name"]: each["state"] for each in sandbox.json("plugins")}["greeter"] == "disabled"


def test_dependents_of_a_disabled_plugin_are_blocked_and_named(sandbox: Sandbox) -> None:
    """The command names them, also in a dry run, and the running host blocks them."""
    sandbox.put(speaker_wheel(sandbox.wheels, "base", "1.0", "base"))
    sandbox.put(speaker_wheel(sandbox.wheels, "top", "1.0", "top", requires=["plughost-base"]))
    with sandbox.serving() as host:
        assert "top requires base, and is blocked" in sandbox.run("disable", "base", "--dry-run")
        assert host.get("/base").status_code == 200
        outcome = sandbox.json("disable", "base")
        assert (outcome["ok"], outcome["blocked"]) == (True, ["top"])
        states = {each["name"]: each["state"] for each in host.status()["plugins"]}
        assert (states["base"], states["top"]) == ("disabled", "blocked")


def test_no_reload_does_not_claim_that_no_host_runs(sandbox: Sandbox) -> None:
    """The next reload applies the change; commands that change something say so."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    speaker_wheel(sandbox.wheels, "other", "1.0", "other")
    with sandbox.serving():
        for change in (("disable", "greeter"), ("install", "other")):
            output = sandbox.run(*change, "--no-reload")
            assert "No host runs" not in output
            assert "at the next reload or start" in output


def test_a_change_that_no_host_took_up_is_taken_up_by_repeating_the_command(sandbox: Sandbox) -> None:
    """A command that was killed before the reload, or had --no-reload, left the plugin served, or not served."""
    sandbox.put(speaker_wheel(sandbox.wheels, "base", "1.0", "base"))
    sandbox.put(speaker_wheel(sandbox.wheels, "top", "1.0", "top", requires=["plughost-base"]))
    with sandbox.serving() as host:
        for command, base, top in (("disable", "disabled", "blocked"), ("enable", "active", "active")):
            sandbox.run(command, "base", "--no-reload")
            outcome = sandbox.json(command, "base")
            assert outcome["ok"]
            states = {each["name"]: each["state"] for each in host.status()["plugins"]}
            assert (states["base"], states["top"]) == (base, top)
    assert "Nothing to change" in sandbox.run("enable", "base")


@pytest.mark.thorough
def test_a_change_that_the_host_refuses_is_reversed(sandbox: Sandbox) -> None:
    """If the running host can't serve with it, the settings file is restored byte for byte."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    settings = sandbox.folder / "plughost.toml"
    settings.write_text(f"hook_timeout = 5 # seconds\n{settings.read_text()}")
    with sandbox.serving("--strict") as host:
        (sandbox.site / "speaking_greeter" / "__init__.py").unlink()
        (sandbox.site / "plughost_greeter-1.0.dist-info" / "RECORD").write_text("")
        before = settings.read_bytes()
        speaker_wheel(sandbox.wheels, "other", "1.0", "other")
        sandbox.run("install", "--no-reload", "other")
        assert "was restored" in sandbox.run("disable", "other", code=1)
        assert settings.read_bytes() == before
        assert host.get("/greeter").status_code == 200


def test_an_unknown_name_is_refused_with_the_most_similar(sandbox: Sandbox) -> None:
    """Nothing is written, and no settings file is created."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    (sandbox.folder / "plughost.toml").unlink()
    assert "did you mean greeter?" in sandbox.run("disable", "greater", code=1)
    assert not (sandbox.folder / "plughost.toml").exists()
    sandbox.run("disable", "greeter")
    assert (sandbox.folder / "plughost.toml").read_text() == 'disabled = ["greeter"]\n'
    assert "overrides" in sandbox.run("enable", "greeter", code=1, PLUGHOST_DISABLED='["greeter"]')


@pytest.mark.parametrize(
    ("before", "names", "after"),
    [
        ("", ["a"], 'disabled = ["a"]\n'),
        ('disabled = ["a"] # why\n', ["a", "b"], 'disabled = ["a", "b"] # why\n'),
        ('disabled = ["a", "b"]\n', ["b"], 'disabled = ["b"]\n'),
        ('disabled = ["a"]\n', [], "disabled = []\n"),
        ('disabled = ["a", "b"] # why\n', ["b", "a"], 'disabled = ["b", "a"] # why\n'),
        (
            'disabled = [\n  "a", # first\n  "b", # second\n]\n',
            ["a", "b", "c"],
            'disabled = [\n  "a", # first\n  "b", # second\n  "c",\n]\n',
        ),
        (
            "# top\nstrict = true\n\n[sites.main] # it\nhttp_port = 1\n",
            ["a"],
            '# top\nstrict = true\ndisabled = ["a"]\n\n[sites.main] # it\nhttp_port = 1\n',
        ),
        ("[plugins.a]\nx = 1\n", ["a"], 'disabled = ["a"]\n\n[plugins.a]\nx = 1\n'),
    ],
)
def test_an_edit_keeps_the_rest(before: str, names: list[str], after: str) -> None:
    """Comments, order and layout stay; a new key is written before the first table."""
    assert with_value(before, "disabled", names) == after


def test_an_uneditable_file_is_refused() -> None:
    """A file that is no TOML, or has another type in a table's place, stays unchanged."""
    with pytest.raises(CommandError, match="can't be edited"):
        with_value("disabled = [", "disabled", ["a"])
    with pytest.raises(CommandError, match="log in the settings file is no table"):
        with_value('log = "a"', "log.level", "info")
