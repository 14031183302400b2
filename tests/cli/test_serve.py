"""`plughost serve` as a process: its output, signals and exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.cli.conftest import install_store_plugin
from tests.host.plugins import is_running
from tests.waiting import wait_until

from plughost._runtime.control import send_command, socket_path

if TYPE_CHECKING:
    from tests.cli.conftest import Line, Serving

Serve = Callable[..., "Serving"]

STARTING = """
import pathlib, threading
from plughost import hookimpl


@hookimpl
def started(context):
    pathlib.Path("ports-are-open").touch()
    while not pathlib.Path("go-on").exists():
        threading.Event().wait(0.01)
"""
ENDLESS = """
import pathlib, threading


def migrate(session):
    pathlib.Path("migrating").touch()
    threading.Event().wait()
"""
SLOW = """
import pathlib, threading
from plughost import Operation, Route, RouteGroup, hookimpl


class Slow:
    def on_get(self, req, resp):
        pathlib.Path("begun").touch()
        while not pathlib.Path("go-on").exists():
            threading.Event().wait(0.01)
        resp.media = "answered"


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/slow", routes=(Route("", Slow(), {"GET": Operation(summary="Wait")}),))]
"""

CROWDED = """
import threading
from plughost import Operation, Route, RouteGroup, hookimpl


def refuse(thread):
    raise RuntimeError("can't start new thread")


class Crowded:
    def on_get(self, req, resp):
        threading.Thread.start = refuse
        resp.media = "answered"


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/crowded", routes=(Route("", Crowded(), {"GET": Operation(summary="Crowd")}),))]
"""


def events(errors: str) -> list[dict[str, Any]]:
    """Return the events on standard error, each line of which must be a JSON object."""
    return [json.loads(line) for line in errors.splitlines()]


def fails(url: str) -> None:
    """Send a request, and expect the connection to end without an answer."""
    with pytest.raises(httpx.HTTPError):
        httpx.get(url, trust_env=False, timeout=60)


def refuses(url: str) -> bool:
    """Return whether no listener is open any more."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=60).close()
    except ConnectionError:
        return True
    return False


def test_it_prints_addresses_and_plugins(line: Line, serving: Serve) -> None:
    """The first lines have the addresses, every plugin with its state, and how to stop."""
    line.install("good")
    line.install("bad", "raise RuntimeError('broken on purpose')")
    host = serving()
    assert httpx.get(f"{host.url()}/good", trust_env=False).json()["word"] == "good"
    rows = [row.split() for row in host.output.splitlines()]
    assert ["good", "1.0", "active", "/good"] in rows
    assert next(row for row in rows if row[:1] == ["bad"])[2] == "failed"
    assert rows[-1] == ["Press", "Ctrl+C", "to", "stop."]
    assert not any(row.endswith(" ") for row in host.output.splitlines())


LOUD = """
import gc, sys, threading, warnings
from plughost import hookimpl


class Unruly:
    def __del__(self):
        raise RuntimeError("unraisable")


@hookimpl
def started(context):
    warnings.warn("a warning", stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    Unruly()
"""


def test_without_a_terminal_all_output_is_json(line: Line) -> None:
    """Standard output is empty, and standard error has only JSON: start, listeners, reload, stop."""
    line.install("good")
    line.install("loud", LOUD)
    line.install("bad", "raise RuntimeError('broken on purpose')")
    process = line.start("serve", "--dev")
    wait_until(lambda: is_running(line.folder / "plughost-data"))
    assert send_command(line.folder / "plughost-data", "reload")["swapped"]
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "")
    logged = {event["event"]: event for event in events(errors)}
    assert logged.keys() >= {"started", "announcement", "reload", "stopping", "stopped", "plugin does not serve"}
    assert "an error ended a thread" in logged
    assert "an error was ignored" in logged
    assert any("a warning" in name for name in logged)
    assert all(url.startswith("http") for url in logged["started"]["listeners"])


def test_a_warning_of_the_start_is_a_warning_in_the_log(line: Line) -> None:
    """At the level warning, the log shows what is open to others, and what `--dev` leaves out there."""
    line.install("good")
    line.configure("address = '0.0.0.0'\n[log]\nlevel = 'warning'")
    process = line.start("serve", "--dev")
    wait_until(lambda: is_running(line.folder / "plughost-data"))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    warned = [event["text"] for event in events(errors) if event["level"] == "warning"]
    assert ["no demo users" in text for text in warned].count(True) == 1
    assert ["allowed_hosts" in text for text in warned].count(True) == 1


def test_a_json_log_on_a_terminal_is_only_json(line: Line, serving: Serve) -> None:
    """With log.format json, text for people goes only to standard output."""
    line.configure("[log]\nformat = 'json'")
    line.install("good")
    host = serving()
    assert "good" in host.output
    _, errors = host.end(signal.SIGTERM)
    assert [event["event"] for event in events(errors)] == ["started", "stopping", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_requests_in_flight_and_ends(line: Line, serving: Serve, number: int) -> None:
    """After SIGTERM or SIGINT, a slow request is answered, and the exit code is 0."""
    line.install("slow", SLOW)
    host = serving()
    responses: list[Any] = []
    asking = threading.Thread(
        target=lambda: responses.append(httpx.get(f"{host.url()}/slow", trust_env=False, timeout=60).json())
    )
    asking.start()
    wait_until((line.folder / "begun").exists)
    host.process.send_signal(number)
    wait_until(lambda: refuses(host.url()))
    (line.folder / "go-on").touch()
    code, errors = host.ended()
    asking.join(60)
    assert (code, responses) == (0, ["answered"])
    assert [event["event"] for event in events(errors)] == ["started", "stopping", "request", "stopped"]
    assert "Traceback" not in errors


def test_a_second_sigint_ends_it_at_once(line: Line, serving: Serve) -> None:
    """A second Ctrl+C doesn't wait for requests in flight."""
    line.install("slow", SLOW)
    host = serving()
    asking = threading.Thread(target=fails, args=(f"{host.url()}/slow",))
    asking.start()
    wait_until((line.folder / "begun").exists)
    host.process.send_signal(signal.SIGINT)
    assert host.process.stderr is not None
    while "stopping" not in host.process.stderr.readline():
        assert host.process.poll() is None
    assert host.end(signal.SIGINT)[0] == -signal.SIGINT
    asking.join(60)


def test_a_request_beyond_the_grace_time_is_cut_off(line: Line, serving: Serve) -> None:
    """The exit code is 1.

    The message has the seconds waited and the setting's value, even one that a reload has changed.
    """
    line.install("slow", SLOW)
    host = serving()
    line.configure("grace_time = 0.2")
    assert send_command(line.folder / "plughost-data", "reload")["ok"]
    asking = threading.Thread(target=fails, args=(f"{host.url()}/slow",))
    asking.start()
    wait_until((line.folder / "begun").exists)
    code, errors = host.end(signal.SIGTERM)
    asking.join(60)
    assert code == 1
    assert re.search(r"cut off after \d+\.\d s \(the setting grace_time is 0\.2 s\)", errors), errors


def test_sighup_reloads(line: Line, serving: Serve) -> None:
    """SIGHUP loads new installations; `status` and `reload` reach the host and have stable JSON members."""
    line.install("good")
    host = serving()
    line.install("late")
    host.process.send_signal(signal.SIGHUP)
    wait_until(lambda: httpx.get(f"{host.url()}/late", trust_env=False).status_code == 200)
    wait_until(lambda: send_command(line.folder / "plughost-data", "status")["last_reload"] is not None)
    status = json.loads(line.run("status", "--json").output)
    assert (status["pid"], status["phase"], status["generation"]) == (host.process.pid, "serving", 2)
    assert status["last_reload"]["added"] == ["late"]
    assert datetime.fromisoformat(status["started_at"]) < datetime.now(UTC)
    assert {each["scheme"] for each in status["listeners"]} == {"http", "https"}
    report = json.loads(line.run("reload", "--json").output)
    assert report.keys() >= {
        "ok",
        "swapped",
        "generation",
        "added",
        "changed",
        "disabled",
        "removed",
        "reused",
        "failed",
        "blocked",
    }
    assert (report["generation"], report["reused"]) == (3, ["good", "late"])
    assert "Generation 4 serves, after" in line.run("reload").output
    assert "plughost 0" in line.run("status").output


def test_without_a_free_thread_it_serves_and_stops(line: Line, serving: Serve) -> None:
    """A reload or a command that the system allows no thread for is told; a stop needs none."""
    line.install("crowded", CROWDED)
    log = line.folder / "log"
    with log.open("ab") as file:
        host = serving(stderr=file)
    assert httpx.get(f"{host.url()}/crowded", trust_env=False).json() == "answered"
    host.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "no further thread" in log.read_text() or host.process.poll() is not None)
    assert "no further thread" in send_command(line.folder / "plughost-data", "status")["error"]
    assert httpx.get(f"{host.url()}/crowded", trust_env=False).json() == "answered"
    assert host.end(signal.SIGTERM)[0] == 0
    assert [each for each in events(log.read_text()) if "exception" in each] == []


def test_a_port_in_use_is_reported(line: Line) -> None:
    """The message is one readable line, and the exit code is 1."""
    line.install("good")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (line.folder / "plughost.toml").write_text(f"[sites.main]\nhttp_port = {port}\nhttps_port = 0\n")
        process = line.start("serve", "--dev")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    event = events(errors)[-1]
    assert (event["event"], str(port) in event["reason"]) == ("refused to start", True)
    assert "Traceback" not in errors


def test_a_command_during_the_start_is_executed(line: Line) -> None:
    """When the ports are open, a command waits for the start, and doesn't say that no host runs."""
    line.install("starting", STARTING)
    process = line.start("serve", "--dev")
    wait_until((line.folder / "ports-are-open").exists)
    with socket.socket(socket.AF_UNIX) as asking, asking.makefile() as answers:
        asking.connect(str(socket_path(line.folder / "plughost-data")))
        asking.sendall(b'{"command": "reload"}\n')
        (line.folder / "go-on").touch()
        assert json.loads(answers.readline())["problems"] == []
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_start_ends_during_a_migration(line: Line) -> None:
    """SIGTERM doesn't wait until a long migration, or a wait for another host's, is over; nothing of it is kept."""
    install_store_plugin(line, "kept")
    (line.packages / "kept" / "0002_wait.py").write_text(ENDLESS)
    process = line.start("serve", "--dev")
    wait_until((line.folder / "migrating").exists)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, events(errors)[-1]["event"]) == (0, "stopped")
    with closing(sqlite3.connect(line.folder / "plughost-data" / "stores" / "kept.sqlite3")) as store:
        assert store.execute("SELECT count(*) FROM plughost_migrations").fetchone() == (0,)


@pytest.mark.parametrize("wrong", ["certificate", "port"])
def test_a_failed_start_leaves_no_store_behind(line: Line, wrong: str) -> None:
    """Without a certificate or a port, no file was created that looks like data."""
    install_store_plugin(line, "kept")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        if wrong == "port":
            line.configure("[tls]\nself_signed = true")
            settings = line.folder / "plughost.toml"
            settings.write_text(settings.read_text().replace("http_port = 0", f"http_port = {taken.getsockname()[1]}"))
        process = line.start("serve")
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, wrong in errors) == (1, True)
    left = {each.name for each in (line.folder / "plughost-data").rglob("*") if each.is_file()}
    assert not left & {"kept.sqlite3", "kept.sqlite3.lock"}
    assert not any("control" in each for each in left), "nobody listens there"


def test_a_second_host_on_the_data_folder_is_refused(line: Line, serving: Serve) -> None:
    """The error explains that a host already runs there, and the first one continues to serve."""
    line.install("good")
    host = serving()
    second = line.start("serve", "--dev")
    _, errors = second.communicate(timeout=60)
    assert (second.returncode, "Another host runs on the data folder" in errors) == (1, True)
    assert httpx.get(f"{host.url()}/good", trust_env=False).status_code == 200
    assert host.end(signal.SIGTERM)[0] == 0


def test_without_a_plugin_it_waits(serving: Serve) -> None:
    """It opens no port, and says how to install a plugin."""
    host = serving()
    assert "No plugin mounts a route, so no port is open. Install one:" in host.output
    assert host.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(("arguments", "code"), [(("--strict",), 1), (("--config", "ghost.toml"), 2)])
def test_a_refused_start_is_explained(line: Line, arguments: tuple[str, ...], code: int) -> None:
    """The message names the plugin or the file, without a traceback."""
    line.install("bad", "raise RuntimeError('broken on purpose')")
    process = line.start("serve", "--dev", *arguments)
    _, errors = process.communicate(timeout=60)
    last = errors.splitlines()[-1]
    assert process.returncode == code
    assert "Traceback" not in last
    assert "bad is failed" in last or "ghost.toml" in last


def test_a_log_that_cannot_be_written_affects_no_request(line: Line, serving: Serve) -> None:
    """When nobody reads standard error any more, requests are answered as before."""
    line.install("good")
    host = serving()
    assert host.process.stderr is not None
    host.process.stderr.close()
    host.process.stderr = None
    for _ in range(3):
        assert httpx.get(f"{host.url()}/good", trust_env=False).status_code == 200
    assert host.end(signal.SIGTERM)[0] == 0


def test_closing_the_terminal_ends_it(line: Line) -> None:
    """A host that was started on a terminal ends by the terminal's SIGHUP, instead of a reload."""
    line.install("good")
    terminal, standard_input = os.openpty()
    host = line.serve(stdin=standard_input, start_new_session=True)
    os.close(standard_input)
    os.close(terminal)
    assert host.end(signal.SIGHUP)[0] == 0
    host.terminal.close()
