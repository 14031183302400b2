"""The audit trail: one event for each action for which somebody may be accountable (docs/operators/security.md)."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.integration.kit import HostProcess, host_process
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

ME: Final = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(params=["waitress", "granian"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostProcess]:
    """A host with every plugin and an audit file, on either engine."""
    engine = {"http_engine": request.param}
    settings = {
        "sites": {"main": {**engine, "allowed_hosts": ["127.0.0.1", "localhost"]}, "library": engine},
        "log": {"audit": "audit.jsonl"},
        "trusted": ["dev-console"],
    }
    with host_process(tmp_path, settings) as running:
        yield running


def command(host: HostProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the host's folder."""
    return subprocess.run(
        [sys.executable, "-P", "-c", "from plughost._cli import main; main()", *arguments],
        cwd=host.errors.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def events(host: HostProcess) -> list[dict[str, Any]]:
    """Return the events so far."""
    file = host.errors.parent / "audit.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def last(host: HostProcess, what: str) -> dict[str, Any]:
    """Return the last event of a kind, which must be complete."""
    found = [event for event in events(host) if event["what"] == what][-1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", found.pop("timestamp"))
    return found


def form(client: httpx.Client, page: str) -> dict[str, str]:
    """Return the values of a form on a page of the console."""
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(page).text)
    assert found is not None
    return {"csrf": found[1]}


def test_refusals_are_recorded_with_who_where_and_why(host: HostProcess) -> None:
    """A missing role names the account; foreign pages and hosts name nobody; missing credentials are no event."""
    with host.client(site="library") as library, host.client() as main:
        token = library.get("/mylibrary/setup/login", auth=("user@example.org", "user")).text
        who = last(host, "login")["who"]
        identified = {"Authorization": f"Bearer {token}", "X-Request-ID": "mine"}
        assert library.get("/mylibrary/setup/secured/admin", headers=identified).status_code == 403
        event = last(host, "refusal")
        assert "admin" in event.pop("reason")
        assert event == {
            "what": "refusal",
            "outcome": "403",
            "plugin": "library-auth",
            "who": who,
            "where": "127.0.0.1",
            "request_id": "mine",
            "method": "GET",
            "path": "/mylibrary/setup/secured/admin",
        }
        assert library.get("/mylibrary/setup/secured", headers={"Authorization": "Bearer x.y.z"}).status_code == 401
        assert (last(host, "refusal")["outcome"], "who" in last(host, "refusal")) == ("401", False)
        assert main.post("/messages", headers={"Sec-Fetch-Site": "cross-site"}, json={}).status_code == 403
        assert last(host, "refusal")["plugin"] == "messages"
        assert main.get("/messages", headers={"Host": "rebound.example"}).status_code == 400
        event = last(host, "refusal")
        assert "a host that this site does not serve" in event["reason"]
        assert (event["outcome"], event["plugin"], event["path"]) == ("400", "messages", "/messages")
        assert library.get("/mylibrary/setup/secured").status_code == 401
        assert library.get("/mylibrary/setup/login", auth=("user@example.org", "wrong")).status_code == 401
    assert len([event for event in events(host) if event["what"] == "refusal"]) == 4


def test_commands_are_recorded_with_their_user(host: HostProcess) -> None:
    """Reloads, switched plugins, purged and restored stores, and rotated keys name the system's user."""
    by = {"by": ME, "where": "command line"}
    command(host, "reload")
    assert last(host, "reload") == {"what": "reload", "outcome": "ok", "generation": 2, **by}
    host.process.send_signal(signal.SIGHUP)
    wait_until(lambda: last(host, "reload").get("where") == "signal")
    command(host, "disable", "messages")
    assert last(host, "disable") == {"what": "disable", "outcome": "ok", "target": ["messages"], **by}
    assert last(host, "reload") == {"what": "reload", "outcome": "ok", "generation": 4, **by}
    command(host, "enable", "messages")
    assert last(host, "enable") == {"what": "enable", "outcome": "ok", "target": ["messages"], **by}
    command(host, "library-auth", "rotate-key")
    assert last(host, "key rotation").items() >= {"outcome": "ok", **by}.items()
    assert command(host, "purge", "messages", "--yes").returncode == 1
    assert last(host, "purge") == {"what": "purge", "outcome": "failed", "target": ["messages"], **by}
    command(host, "stores", "backup", "messages", "copy")
    assert host.stop() == 0
    command(host, "stores", "restore", "messages", "copy", "--yes")
    assert last(host, "restore") == {"what": "restore", "outcome": "ok", "target": ["messages"], "file": "copy", **by}
    command(host, "purge", "messages", "--yes")
    assert last(host, "purge")["outcome"] == "ok"


def test_actions_in_the_console_are_recorded(host: HostProcess) -> None:
    """These are a session's start, refusal and end, a reload, a switched plugin and a changed setting."""
    link = command(host, "dev-console").stdout.strip()
    with host.client(headers={"Origin": host.url(), "Host": f"127.0.0.1:{host.port()}"}) as client:
        assert client.get(link).status_code == 303
        assert last(host, "console").items() >= {"action": "open", "outcome": "ok", "where": "127.0.0.1"}.items()
        fields = form(client, "/q/dev/plugins")
        done = client.post("/q/dev/plugins/messages/state", data={**fields, "state": "disabled"})
        wait_until(lambda: last(host, "console")["action"] == "disable")
        asked = {"where": "127.0.0.1", "request_id": done.headers["X-Request-ID"]}
        expected = {"what": "console", "outcome": "ok", "plugin": "dev-console", "action": "disable", **asked}
        assert last(host, "console") == {**expected, "target": ["messages"]}
        assert last(host, "reload").items() >= asked.items()
        client.post("/q/dev/reload", data=fields)
        wait_until(lambda: last(host, "console")["action"] == "reload")
        client.post("/q/dev/settings/edit", data={**fields, "key": "grace_time", "value": "20", "seen": "yes"})
        wait_until(lambda: last(host, "console")["action"] == "set")
        assert last(host, "console").items() >= {"outcome": "ok", "target": ["grace_time"]}.items()
        client.post("/q/dev/leave", data=fields)
        assert last(host, "console")["action"] == "leave"
        assert client.get(link).status_code == 403
        assert last(host, "console").items() >= {"action": "open", "outcome": "refused"}.items()
    assert not [event for event in events(host) if event["what"] == "refusal"]


def test_a_login_succeeds_while_the_key_of_the_trail_cannot_be_kept(host: HostProcess) -> None:
    """On a full or read-only disk, the trail has the login with the hash that the account has once the key is kept."""
    lock = host.errors.parent / "data" / ".lock"
    lock.mkdir()
    with host.client(site="library") as library:
        statuses = [library.get("/mylibrary/setup/login", auth=("user@example.org", "user")).status_code]
        assert not (lock.parent / "audit-key").exists()
        lock.rmdir()
        statuses.append(library.get("/mylibrary/setup/login", auth=("user@example.org", "user")).status_code)
    assert (lock.parent / "audit-key").exists()
    assert statuses == [200, 200]
    assert len({event["who"] for event in events(host) if event["what"] == "login"}) == 1
    assert host.errors.read_text().count("the key of the audit trail can't be kept") == 1
