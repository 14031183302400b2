"""Control: commands that reach a running host through its socket, who may send them, and restarts that fail."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.host.plugins import is_running
from tests.waiting import wait_until

from plughost._api.errors import CommandError, NotRunning
from plughost._api.host import Listener
from plughost._cli.controlling import drain, status
from plughost._runtime import restart
from plughost._runtime.control import (
    AlreadyRunning,
    Control,
    NotPermitted,
    reload_running,
    send_command,
    socket_path,
    user_name,
)
from plughost._runtime.sockets import Sockets

if TYPE_CHECKING:
    import click


def fail() -> dict[str, Any]:
    """Fail."""
    raise ValueError("no luck")


COMMANDS: dict[str, Any] = {"ping": dict, "echo": lambda word: {"word": word}, "exit": sys.exit, "fail": fail}


@pytest.fixture(params=["short", "long" * 30])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data folder with a short or a long path."""
    return tmp_path / str(request.param)


@pytest.fixture
def listening(folder: Path) -> Iterator[Path]:
    """A data folder on which a host listens."""
    control = Control(folder, COMMANDS)
    control.claim()
    control.start()
    yield folder
    control.stop()


def send(folder: Path, data: bytes) -> dict[str, Any]:
    """Send bytes to the socket and return the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(socket_path(folder)))
        connection.sendall(data)
        answer: dict[str, Any] = json.loads(connection.makefile().readline())
        return answer


@pytest.mark.parametrize(("command", "cause"), [(status, "has no 'version'"), (drain, "commands are status")])
def test_what_a_host_of_an_earlier_version_lacks_is_explained(
    tmp_path: Path, command: click.Command, cause: str
) -> None:
    """A member of its status, or a command: the message says to restart the host, without a traceback."""
    control = Control(tmp_path / "plughost-data", {"status": lambda: {"dev": False}})
    control.claim()
    control.start()
    try:
        result = CliRunner().invoke(command, env={"PLUGHOST_DATA_DIR": str(control.data_dir)})
    finally:
        control.stop()
    assert result.exit_code == 1
    assert cause in result.stderr
    assert result.stderr.endswith("If plughost was upgraded since the host started, run: plughost restart\n")


def test_a_command_is_answered(listening: Path) -> None:
    """A command with its arguments reaches the host, wherever the data folder is."""
    assert is_running(listening)
    assert send_command(listening, "echo", word="ä") == {"word": "ä"}


def test_only_its_own_user_can_reach_the_socket(listening: Path) -> None:
    """The socket and the lock have mode 0600, and a folder in the temporary folder has 0700."""
    assert stat.S_IMODE(socket_path(listening).stat().st_mode) == 0o600
    assert stat.S_IMODE((listening / "host.lock").stat().st_mode) == 0o600
    if socket_path(listening).parent != listening:
        assert stat.S_IMODE(socket_path(listening).parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"rubbish\n",
        b"[]\n",
        b"7\n",
        b'{"command": 7}\n',
        b'{"command": "shutdown"}\n',
        b'{"command": "echo"}\n',
        b'{"command": "ping", "more": 1}\n',
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b'{"command": "ping", "x": "' + b"x" * 100_000 + b'"}\n',
    ],
    ids=lambda data: data[:20].decode("latin-1"),
)
def test_an_unknown_command_is_answered_with_the_known_ones(listening: Path, data: bytes) -> None:
    """Rubbish of any kind is answered with the list of commands, and the host continues to listen."""
    try:
        assert send(listening, data) == {"error": "commands are echo, exit, fail, ping"}
    except (BrokenPipeError, ConnectionResetError):
        assert len(data) > 65536  # the host closes the connection when input is longer than any command
    assert is_running(listening)


def test_a_silent_client_blocks_nobody(listening: Path) -> None:
    """A client that connects and sends nothing doesn't delay others, and is answered in the end."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(30)
        silent.connect(str(socket_path(listening)))
        assert is_running(listening)
        assert b"commands are echo" in silent.recv(100)


def test_a_command_that_fails_is_answered(listening: Path) -> None:
    """The sender learns that the command failed, and the host continues to listen."""
    assert send_command(listening, "fail") == {"error": "the host failed on this command: ValueError: no luck"}
    assert send_command(listening, "exit") == {"error": "the host failed on this command: SystemExit: "}
    assert is_running(listening)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system can't tell who sent a command")
def test_a_sender_cannot_claim_to_be_another_user(tmp_path: Path) -> None:
    """The host asks the system, whatever the command says."""
    control = Control(tmp_path, {"who": lambda by: {"by": by}})
    control.start()
    assert send_command(tmp_path, "who", by="somebody") == {"by": user_name(os.getuid())}
    control.stop()


def test_a_reload_that_a_host_of_another_version_does_not_know_is_an_error(listening: Path) -> None:
    """The error has the host's answer."""
    with pytest.raises(CommandError, match=r"^The running host did not reload: commands are echo, exit, fail, ping\.$"):
        reload_running(listening)


def test_a_stop_answers_a_command_that_has_come(folder: Path) -> None:
    """The process may end after it, so it waits for the answer."""
    begun, done = threading.Event(), threading.Event()

    def finish() -> dict[str, Any]:
        begun.set()
        wait_until(lambda: not is_running(folder))
        done.set()
        return {"ok": True}

    control = Control(folder, COMMANDS | {"finish": finish})
    control.start()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send_command, folder, "finish")
        assert begun.wait(30)
        control.stop()
        assert done.is_set()
        assert answer.result(30) == {"ok": True}


def test_a_stop_does_not_wait_for_a_command_that_hangs(folder: Path) -> None:
    """Its sender gets no answer in time, and the host ends."""
    begun, release = threading.Event(), threading.Event()

    def hang() -> dict[str, Any]:
        begun.set()
        return {"released": release.wait(30)}

    control = Control(folder, COMMANDS | {"hang": hang})
    control.start()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send_command, folder, "hang")
        assert begun.wait(30)
        control.stop()
        release.set()
        assert answer.result(30) == {"released": True}


def test_a_second_host_on_a_data_folder_is_refused(listening: Path) -> None:
    """The error names the folder and says what to do; the first host continues to listen."""
    with pytest.raises(AlreadyRunning, match="stop it first, or set another data_dir"):
        Control(listening, COMMANDS).claim()
    assert is_running(listening)


def test_a_successor_claims_another_data_folder_itself(tmp_path: Path) -> None:
    """If `data_dir` has changed, the inherited lock is of another folder; on the same one, it is enough."""
    old, same, other = (Control(tmp_path / name, COMMANDS) for name in ("old", "old", "new"))
    old.claim()
    same.claim(os.dup(old.lock))
    other.claim(os.dup(old.lock))
    with pytest.raises(AlreadyRunning):
        Control(tmp_path / "new", COMMANDS).claim()
    for each in (old, same):
        each.stop()
    old.claim()  # which `other` doesn't keep
    for each in (old, other):
        each.stop()


def test_a_killed_hosts_files_are_replaced(folder: Path) -> None:
    """Stale sockets and a stale lock file prevent no start, and don't look like a running host."""
    folder.mkdir()
    (folder / "host.lock").touch()
    socket_path(folder).parent.mkdir(mode=0o700, exist_ok=True)
    for path in (socket_path(folder), socket_path(folder).with_suffix(".new")):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
    assert not is_running(folder)
    control = Control(folder, COMMANDS)
    control.claim()
    control.start()
    assert is_running(folder)
    control.stop()
    assert not socket_path(folder).exists()


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The error names the setting to change and gives the system's message."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"^The data folder {tmp_path}/file/x can't be used: Not a .*data_dir"):
        Control(tmp_path / "file" / "x", COMMANDS).claim()


def test_a_command_without_a_running_host_is_an_error(tmp_path: Path) -> None:
    """The error names the data folder, even if that is a file."""
    (tmp_path / "file").touch()
    for data_dir in (tmp_path, tmp_path / "file"):
        with pytest.raises(NotRunning, match=f"No host is running on the data folder {data_dir}"):
            send_command(data_dir, "status")


def test_a_host_whose_data_folder_became_a_file_stops(tmp_path: Path) -> None:
    """Its socket is gone, and it releases everything else."""
    control = Control(tmp_path / "data", COMMANDS)
    control.claim()
    control.start()
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "data").touch()
    control.stop()
    assert control.lock == -1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may connect to any socket, so there is nothing to be refused")
def test_a_socket_of_another_user_is_reported(listening: Path) -> None:
    """If the connection is refused for lack of permission, the error says that the host is another user's."""
    socket_path(listening).chmod(0)
    with pytest.raises(NotRunning, match="is another user's"):
        send_command(listening, "ping")


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """A socket in the temporary folder needs a private folder; one open to others is neither used nor contacted."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data_dir = tmp_path / ("long" * 30)
    socket_path(data_dir).parent.mkdir()
    socket_path(data_dir).parent.chmod(mode)
    control = Control(data_dir, COMMANDS)
    with pytest.raises(PermissionError, match="this user's alone"):
        control.start()
    with pytest.raises(NotPermitted):
        send_command(data_dir, "ping")


@pytest.mark.parametrize("manager", ["", "/no-manager"])
def test_a_stop_in_the_middle_of_a_restart_ends_the_successor(
    tmp_path: Path, manager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop that comes while the successor is being started ends it, too, however little of it runs by then."""
    successors: list[restart._Successor] = []

    class Successor(restart._Successor):
        def __init__(self, descriptors: list[tuple[str, int]], folder: Path) -> None:
            super().__init__(descriptors, folder)
            successors.append(self)

    monkeypatch.setattr(restart, "_Successor", Successor)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", "import signal; signal.pause()"])
    monkeypatch.setenv("NOTIFY_SOCKET", manager)
    control = Control(tmp_path, COMMANDS)
    control.claim()
    restarting = restart.Restart(
        Sockets(), control, is_stopping=lambda: bool(successors), served=lambda: None, stop=control.stop
    )
    assert restarting()["reason"] == "the host is stopping"
    assert successors[0].wait() == -signal.SIGKILL
    control.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no way to turn connections away")
def test_a_host_whose_restart_failed_closes_its_ports_without_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other process serves there, so a port that closes accepts no connection that it would reset."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    closing, sockets = Listener(site="main", scheme="http", address="127.0.0.1", port=0, engine="waitress"), Sockets()
    sockets.bind(closing)
    control = Control(tmp_path, COMMANDS)
    control.claim()
    restarting = restart.Restart(sockets, control, is_stopping=lambda: False, served=lambda: None, stop=control.stop)
    assert "the next process can't be started" in restarting()["reason"]
    with sockets.duplicate(closing) as listening, socket.socket() as late:
        sockets.release(closing)
        late.setblocking(False)
        late.connect_ex(listening.getsockname())
        with pytest.raises(BlockingIOError):
            listening.accept()
    control.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no abstract sockets")
def test_a_service_manager_may_listen_on_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address begins with @ in the variable, and with a null byte for the system."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # the system chooses a free one
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{manager.getsockname()[1:].decode()}")
        restart.notify("READY=1")
        assert manager.recv(100) == b"READY=1"
