"""The audit trail of installations (docs/operators/security.md)."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING

from .wheels import broken, keeper, speaker

if TYPE_CHECKING:
    from .environments import Sandbox


def test_changes_of_distributions_are_recorded(sandbox: Sandbox) -> None:
    """Each is one event with versions, user and outcome, even if the running host refused it."""
    with (sandbox.folder / "plughost.toml").open("a") as settings:
        settings.write('\n[log]\naudit = "audit.jsonl"\n')
    speaker(sandbox.wheels, "greeter", "1.0", "hello")
    speaker(sandbox.wheels, "greeter", "2.0", "hello")
    keeper(sandbox.wheels, "1.0")
    broken(sandbox.wheels, "greeter", "3.0")
    with sandbox.serving():
        sandbox.run("install", "greeter==1.0", "keeper")
        sandbox.run("install", "greeter==2.0", "--dry-run")
        sandbox.run("install", "greeter==2.0")
        sandbox.run("install", "greeter==3.0", code=1)
        sandbox.run("uninstall", "keeper", "--purge", "--yes")
    lines = (sandbox.folder / "audit.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["what"] != "reload"]
    assert [(event["what"], event["outcome"], event["target"]) for event in events] == [
        ("install", "ok", ["plughost-greeter 1.0", "plughost-keeper 1.0"]),
        ("upgrade", "ok", ["plughost-greeter 2.0"]),
        ("upgrade", "undone", ["plughost-greeter 3.0"]),
        ("purge", "ok", ["notes"]),
        ("uninstall", "ok", ["plughost-keeper 1.0"]),
    ]
    assert {(event["by"], event["where"]) for event in events} == {
        (pwd.getpwuid(os.getuid()).pw_name, "command line"),
    }


def test_refused_installations_are_recorded_with_the_reason(sandbox: Sandbox) -> None:
    """They may be disallowed, tampered or not found; no URL's password is written, and a dry run is no event."""
    settings = sandbox.folder / "plughost.toml"
    settings.write_text(f'allowed = ["plughost-packages"]\n{settings.read_text()}\n[log]\naudit = "audit.jsonl"\n')
    speaker(sandbox.wheels, "greeter", "1.0", "hello")
    (sandbox.folder / "empty").mkdir()
    sandbox.run("install", "greeter", "--dry-run", code=1)
    for given in (
        ["greeter"],
        ["--", "-rfile"],
        ["--bundle", "empty"],
        ["plughost-x @ http://me:secret@127.0.0.1:9/x-1-py3-none-any.whl"],
    ):
        sandbox.run("install", *given, code=1, PIP_RETRIES="0")
    text = (sandbox.folder / "audit.jsonl").read_text()
    assert "secret" not in text
    events = list(map(json.loads, text.splitlines()))
    assert {event["what"] for event in events} == {"install"}
    assert {event["by"] for event in events} == {pwd.getpwuid(os.getuid()).pw_name}
    assert [(event["outcome"], event["target"]) for event in events] == [
        ("refused", ["greeter"]),
        ("refused", ["-rfile"]),
        ("refused", ["empty"]),
        ("failed", ["plughost-x @ http://127.0.0.1:9/x-1-py3-none-any.whl"]),
    ]
    assert events[0]["reason"] == "plughost-greeter 1.0 is not allowed: the setting allowed does not name it."


def test_a_person_reads_a_refusal_only_once(sandbox: Sandbox) -> None:
    """Without a running host, the event is beside the error, and has the reason only for programs."""
    settings = sandbox.folder / "plughost.toml"
    before = settings.read_text()
    for form, times in (("text", 1), ("json", 2)):
        settings.write_text(f'{before}\n[log]\nformat = "{form}"\n')
        told = sandbox.run("install", "nowhere", code=1)
        assert told.count("No matching distribution") == times, told
        assert told.count("outcome") == 1, told
