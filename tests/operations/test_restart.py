"""`plughost restart`, socket activation, and exclusive use of a data folder."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from tests.ports import free_port
from tests.waiting import wait_until

from plughost import NotRunning

from .environments import PATIENCE, Sandbox
from .wheels import broken_wheel, build_wheel, host_wheel, speaker_wheel

_WITH_HTTPS = ('listeners = ["http"]\nhttp_port', 'https_port = 0\nlisteners = ["http", "https"]\nhttp_port')

_STOPPER = """
import os, signal

os.kill(os.getppid(), signal.SIGTERM)
while signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:  # until a signal to stop has come to this process
    pass
"""

_STUCK = """
import pathlib
from plughost import Store, hookimpl


@hookimpl
def register_stores(context):
    return [Store(name="stuck", migrations=pathlib.Path("migrations"), tables=("stuck",))]
"""
_MIGRATION = """
import os, pathlib, threading


def migrate(session):
    pathlib.Path("migrating.new").write_text(str(os.getpid()))
    pathlib.Path("migrating.new").rename("migrating")
    threading.Event().wait()
"""

_PROBER = """
import os, threading
from pathlib import Path

from plughost import Operation, Route, RouteGroup, hookimpl

left = threading.Event()


class Probe:
    def __init__(self, host):
        self.host = host

    def on_get(self, req, resp):
        Path("asked").touch()
        left.wait()
        resp.media = {"pid": os.getpid(), "unready": self.host.unready}


@hookimpl
def register_routes(context):
    route = Route("", Probe(context.host), {"GET": Operation(summary="Tell whether the host is ready when it drains")})
    return [RouteGroup(prefix="/prober", routes=(route,))]


@hookimpl
def draining(context):
    left.set()
"""

_LATE = """
import os, threading
from pathlib import Path

from plughost import Operation, Route, RouteGroup, hookimpl

asked, left = threading.Event(), threading.Event()
is_first = not Path("started").exists()


class Wait:
    def on_get(self, req, resp):
        asked.set()
        if not is_first:
            left.wait()
        resp.media = os.getpid()


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/late", routes=(Route("", Wait(), {"GET": Operation(summary="Wait for the drain")}),))]


@hookimpl
def started(context):
    if not is_first:
        asked.wait()
    Path("started").touch()


@hookimpl
def draining(context):
    left.set()
"""


@pytest.fixture
def sandbox(sandbox: Sandbox) -> Sandbox:
    """An environment with one plugin."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    return sandbox


@contextmanager
def load(*asks: Callable[[], httpx.Response]) -> Iterator[list[str]]:
    """Send requests without a pause from several threads; the failures are complete after the `with` block."""
    failures: list[str] = []
    stop = threading.Event()
    begun = threading.Barrier(len(asks) + 1, timeout=PATIENCE)

    def work(ask: Callable[[], httpx.Response]) -> None:
        waiting = True
        while not stop.is_set():
            try:
                ask().raise_for_status()
            except httpx.HTTPError as error:
                failures.append(repr(error))
            if waiting:
                begun.wait()
                waiting = False

    threads = [threading.Thread(target=work, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        yield failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_restart_under_load_loses_no_request(sandbox: Sandbox) -> None:
    """Neither new nor kept connections notice it, over HTTP and HTTPS; another process answers afterwards."""
    settings = sandbox.folder / "plughost.toml"
    settings.write_text(settings.read_text().replace(*_WITH_HTTPS, 1))
    with sandbox.serving("--dev") as host:
        plain, secure = host.url(), host.url(scheme="https").replace("127.0.0.1", "localhost")
        trusted = ssl.create_default_context(cafile=str(sandbox.folder / "data" / "tls" / "certificate.pem"))
        with httpx.Client(trust_env=False) as kept, httpx.Client(trust_env=False, verify=trusted) as kept_secure:
            with load(
                lambda: httpx.get(f"{plain}/greeter", trust_env=False),
                lambda: kept.get(f"{plain}/greeter"),
                lambda: httpx.get(f"{secure}/greeter", trust_env=False, verify=trusted),
                lambda: kept_secure.get(f"{secure}/greeter"),
            ) as failures:
                pid = host.restart()
            assert failures == []
        assert host.status()["pid"] == pid != host.process.pid
        assert (host.url(), host.url(scheme="https").replace("127.0.0.1", "localhost")) == (plain, secure)


def test_a_replaced_process_is_ready_until_its_end(sandbox: Sandbox) -> None:
    """A probe over a kept connection, which the old process still answers, doesn't say that the host stops."""
    wheel = build_wheel(sandbox.wheels, "plughost-prober", "1.0", {"prober.py": _PROBER}, plugins={"prober": "prober"})
    sandbox.put(wheel)
    with sandbox.serving() as host, ThreadPoolExecutor() as pool:
        answer = pool.submit(host.get, "/prober")
        wait_until((sandbox.folder / "asked").exists)
        host.restart()
        assert answer.result().json() == {"pid": host.process.pid, "unready": None}


def test_a_restart_applies_changes_that_a_reload_cannot(sandbox: Sandbox) -> None:
    """A listener's changed setting takes effect, and data held in memory is gone."""
    with sandbox.serving() as host:
        assert host.get("/greeter").json()["count"] == 1
        first = host.url()
        port = free_port()
        settings = sandbox.folder / "plughost.toml"
        settings.write_text(settings.read_text().replace("http_port = 0", f"http_port = {port}", 1))
        assert "sites" in sandbox.run("reload", code=1)
        host.restart()
        assert host.url() == f"http://127.0.0.1:{port}"
        assert host.get("/greeter").json()["count"] == 1
        with pytest.raises(httpx.ConnectError):
            httpx.get(first, trust_env=False)


def test_a_plugin_may_change_the_current_folder(sandbox: Sandbox) -> None:
    """A reload and a restart read the settings in the folder that the host was started in."""
    source = "import os, plughost\nos.chdir('/')\n@plughost.hookimpl\ndef register_checks(context): return []"
    sandbox.put(build_wheel(sandbox.wheels, "plughost-a", "1.0", {"a.py": source}, plugins={"wanderer": "a"}))
    with sandbox.serving() as host:
        sandbox.run("disable", "greeter")
        host.restart()
        assert {each["name"]: each["state"] for each in host.status()["plugins"]}["greeter"] == "disabled"


def test_a_restart_names_plugins_that_no_longer_serve(sandbox: Sandbox) -> None:
    """The new process serves without them, and the command says why."""
    with sandbox.serving() as host:
        sandbox.put(broken_wheel(sandbox.wheels, "cracked", "1.0"))
        output = sandbox.run("restart")
        assert "serves, after" in output
        assert "cracked is failed: import: " in output
        assert host.process.wait(PATIENCE) == 0


@pytest.mark.thorough
def test_an_upgraded_host_serves_after_a_restart(sandbox: Sandbox) -> None:
    """Installing another version of the host says that a restart is needed, and the restart starts it."""
    with sandbox.serving() as host:
        host_wheel(sandbox.wheels, "0.99")
        output = sandbox.run("install", "--upgrade", "plughost", code=1)
        assert "used by the host: restart needed" in output
        assert "plughost restart" in output
        assert host.get("/greeter").json()["count"] == 1
        host.restart()
        assert host.status()["version"] == "0.99"
        assert host.get("/greeter").json()["count"] == 1


@pytest.mark.thorough
def test_a_process_that_cannot_serve_replaces_nothing(sandbox: Sandbox) -> None:
    """The command says why, and the old process continues with its memory and its commands."""
    with sandbox.serving() as host:
        host.get("/greeter")
        settings = sandbox.folder / "plughost.toml"
        settings.write_text(f'required = ["messages"]\n{settings.read_text()}')
        output = sandbox.run("restart", code=1)
        assert "the required plugin messages is not installed" in output
        (sandbox.folder / "good.toml").write_text('data_dir = "data"\n')
        settings.write_text("nonsense = 1\n")
        assert "ended with 2" in sandbox.run("restart", "--config", "good.toml", code=1)
        settings.write_text('data_dir = "data"\n')
        assert host.get("/greeter").json()["count"] == 2
        assert host.status()["pid"] == host.process.pid


def test_a_stop_during_a_restart_is_reported_as_one(sandbox: Sandbox) -> None:
    """It ends the next process, too, so the command claims of neither that it serves."""
    stopper = build_wheel(sandbox.wheels, "plughost-a", "1.0", {"a.py": _STOPPER}, plugins={"stopper": "a"})
    with suppress(NotRunning), sandbox.serving() as host:
        sandbox.put(stopper)
        assert sandbox.run("restart", code=1) == "Error: Not restarted: the host is stopping.\n"
        assert host.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("manager", ["", "@plughost-test-nobody"])
def test_a_stop_leaves_no_next_process_behind(sandbox: Sandbox, manager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs in a migration would keep the ports and the data folder. The restart is answered."""
    monkeypatch.setenv("NOTIFY_SOCKET", manager)
    stuck = build_wheel(sandbox.wheels, "plughost-c", "1.0", {"c.py": _STUCK}, plugins={"stuck": "c"})
    (sandbox.folder / "migrations" / "sqlite").mkdir(parents=True)
    (sandbox.folder / "migrations" / "0001_wait.py").write_text(_MIGRATION)
    migrating = sandbox.folder / "migrating"
    with ThreadPoolExecutor() as pool, suppress(NotRunning), sandbox.serving() as host:
        sandbox.put(stuck)
        restart = pool.submit(sandbox.run, "restart", code=1)
        wait_until(migrating.exists)
        host.process.terminate()
        assert host.process.wait(PATIENCE) == 0
        assert restart.result(PATIENCE) == "Error: Not restarted: the host is stopping.\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(migrating.read_text()), signal.SIGKILL)


def test_a_next_process_that_was_killed_is_not_called_slow(sandbox: Sandbox) -> None:
    """As by the system when memory is short: the reason is not that it took too long."""
    source = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    killed = build_wheel(sandbox.wheels, "plughost-b", "1.0", {"b.py": source}, plugins={"killed": "b"})
    with sandbox.serving():
        sandbox.put(killed)
        assert "the next process ended with -9 and never served" in sandbox.run("restart", code=1)


def test_a_process_that_cannot_take_commands_answers_its_requests(sandbox: Sandbox) -> None:
    """It had accepted connections by then, from the sockets that the old process continues to use."""
    sandbox.put(build_wheel(sandbox.wheels, "plughost-late", "1.0", {"late.py": _LATE}, plugins={"late": "late"}))
    with sandbox.serving() as host, ThreadPoolExecutor(1) as pool:
        url, first = host.url(), host.get("/late").json()

        def ask() -> int:
            while (pid := httpx.get(f"{url}/late", trust_env=False, timeout=PATIENCE).json()) == first:
                pass
            return int(pid)

        asking = pool.submit(ask)
        (sandbox.folder / "data" / "control.new").mkdir()
        assert "control.new" in sandbox.run("restart", code=1)
        assert asking.result(PATIENCE) != first
        assert host.get("/late").json() == first


def test_a_restart_that_fails_at_a_port_leaves_the_others_open(sandbox: Sandbox) -> None:
    """If the new process finds another port in use, the sockets it had taken over stay open in the old process."""
    settings = sandbox.folder / "plughost.toml"
    settings.write_text(settings.read_text().replace(*_WITH_HTTPS, 1))
    with sandbox.serving("--dev") as host, socket.create_server(("127.0.0.1", 0)) as other:
        settings.write_text(settings.read_text().replace("https_port = 0", f"https_port = {other.getsockname()[1]}", 1))
        assert os.strerror(errno.EADDRINUSE) in sandbox.run("restart", code=1)
        assert httpx.get(f"{host.url()}/greeter", trust_env=False).json()["count"] == 1


def test_process_1_of_a_container_is_not_restarted(sandbox: Sandbox) -> None:
    """The container would end with it: the command says so, and the host continues."""
    unshare = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system makes no process namespaces")
    command = [*unshare, "plughost", "serve"]
    with subprocess.Popen(command, cwd=sandbox.folder, env=sandbox.environment, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            next(line for line in process.stderr if b'"started"' in line)
            assert "replace the container" in sandbox.run("restart", code=1)
            assert sandbox.json("status")["pid"] == 1
        finally:
            process.kill()


def test_only_one_host_runs_on_a_data_folder(sandbox: Sandbox) -> None:
    """A second host is refused before it changes anything, and the first one continues."""
    with sandbox.serving() as host:
        assert "Another host runs on the data folder" in sandbox.run("serve", code=1)
        assert host.get("/greeter").status_code == 200


@pytest.mark.parametrize("name", ["main-http", "plughost.socket"])
def test_a_socket_of_systemd_is_served(
    sandbox: Sandbox, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is matched by its name or its port, and others are named; systemd is told of readiness and a new process."""
    with (
        socket.create_server(("127.0.0.1", 0)) as lent,
        socket.create_server(("127.0.0.1", 0)) as spare,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        port = lent.getsockname()[1]
        settings = sandbox.folder / "plughost.toml"
        configured = port if name == "plughost.socket" else 1
        settings.write_text(settings.read_text().replace("http_port = 0", f"http_port = {configured}", 1))
        # Like systemd: the descriptors are numbers 3 and 4, and the variables name the process itself.
        start = (
            f"import os; os.dup2({lent.fileno()}, 3); os.dup2({spare.fileno()}, 4); "
            f"os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='2', LISTEN_FDNAMES='{name}:library-http'); "
            "os.execvp('plughost', ['plughost', 'serve'])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", start],
            cwd=sandbox.folder,
            env=sandbox.environment | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            pass_fds=[lent.fileno(), spare.fileno()],
            stdout=subprocess.PIPE,
        )
        try:
            assert manager.recv(100) == b"READY=1"
            unused = f"no listener uses the socket library-http (127.0.0.1:{spare.getsockname()[1]})"
            assert unused in capfd.readouterr().err
            url = f"http://127.0.0.1:{port}/greeter"
            assert httpx.get(url, trust_env=False).json()["count"] == 1
            with ThreadPoolExecutor() as pool:
                restart = pool.submit(sandbox.json, "restart")
                pid = manager.recv(100).decode().removeprefix("MAINPID=")
                parent = Path(f"/proc/{pid}/stat").read_text().split()[3]
                command = Path(f"/proc/{parent}/cmdline").read_text()
                assert restart.result(PATIENCE)["pid"] == int(pid)
            assert process.wait(PATIENCE) == 0
            assert httpx.get(url, trust_env=False).json()["count"] == 1
            subprocess.run(["kill", pid], check=True)
            assert manager.recv(100) == b"STOPPING=1"
            assert unused in capfd.readouterr().err  # the next process logs to the same place
            # A stop kills a main process at once if it is not a child of systemd, as those without a parent are.
            assert (parent == str(process.pid), "plughost-restart" in command) == (False, False)
        finally:
            assert process.stdout is not None
            process.stdout.read()
            process.stdout.close()
            process.kill()
            process.wait()
