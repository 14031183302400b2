"""Control: how a command line reaches the host that runs on the same data folder.

The host listens on a Unix socket in its data folder, which only its own user can reach. A request is one line
of JSON, `{"command": "reload"}` with the command's arguments beside it, and so is the answer.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import inspect
import json
import os
import pwd
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from plughost._api.errors import CommandError, NotRunning
from plughost._api.reload_report import ReloadReport
from plughost._files import make_folder

Response = Mapping[str, Any]

_LONGEST_PATH: Final = 100  # a Unix socket's path may have 107 bytes on Linux, 103 elsewhere
_LONGEST_LINE: Final = 64 * 1024


class AlreadyRunning(Exception):  # noqa: N818 - reads as what was found
    """Another host runs on the data folder."""


class NotTold(NotRunning):
    """This user may not look whether a host runs on the data folder."""


class Control:
    """Answers the commands that reach a host."""

    def __init__(self, data_dir: Path, commands: Mapping[str, Callable[..., Response]]) -> None:
        """Prepare to listen for commands, each a function that takes its arguments and returns what is answered.

        One that takes `by` gets the name of the system's user who asks.
        """
        self._data_dir = data_dir
        self._path = socket_path(data_dir)
        self._commands = commands
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._inode = 0
        self.lock = -1
        """The descriptor that holds the data folder; -1 before it is claimed."""

    def claim(self, inherited: int | None = None) -> None:
        """Claim the data folder: one host runs on it at a time, but for the moment in which one replaces the other.

        Raises:
            AlreadyRunning: Another host holds it.
            OSError: The folder can't be made or written.
        """
        if inherited is not None:
            self.lock = inherited
            return
        try:
            make_folder(self._data_dir)
            self.lock = os.open(self._data_dir / "host.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"The data folder {self._data_dir} can't be used: {error.strerror}; set another data_dir."
            raise type(error)(message) from error
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.lock)
            self.lock = -1
            raise AlreadyRunning(
                f"Another host runs on the data folder {self._data_dir} (see plughost status): "
                "stop it first, or set another data_dir."
            ) from None

    def listen(self) -> None:
        """Let commands come in, in the place of whoever listened before; they wait for `start`.

        Raises:
            OSError: The socket can't be made.
        """
        make_folder(self._path.parent)
        _refuse_strangers(self._path, self._data_dir)
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        self._server = _Server(str(fresh), self._commands)
        self._inode = fresh.stat().st_ino
        fresh.replace(self._path)

    def start(self) -> None:
        """Answer commands, from a thread of its own.

        Raises:
            OSError: The socket can't be made.
        """
        if self._server is None:
            self.listen()
        assert self._server is not None, "it listens"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more, once what was asked is answered. Give the data folder up, unless it was handed on."""
        if self._server is not None:
            if self._thread is not None:
                self._server.shutdown()
            self._server.server_close()
            with suppress(FileNotFoundError):
                if self._path.stat().st_ino == self._inode:  # else the next host listens there
                    self._path.unlink()
            self._server = self._thread = None
        if self.lock != -1:
            os.close(self.lock)
            self.lock = -1


def send_command(data_dir: Path, command: str, **arguments: Any) -> Response:
    """Send a command to the host that runs on a data folder, and wait for its answer.

    Raises:
        NotRunning: No host listens there, or this user may not look.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            _refuse_strangers(socket_path(data_dir), data_dir)
            connection.connect(str(socket_path(data_dir)))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunning(f"No host is running on the data folder {data_dir}.") from None
        except PermissionError:
            raise NotTold(
                f"The data folder {data_dir} is another user's, who alone can tell whether a host runs on it: "
                "run this command as that user."
            ) from None
        line = b""
        with suppress(ConnectionError), connection.makefile("rb") as responses:
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = responses.readline()
    if not line:
        raise NotRunning(f"The host on the data folder {data_dir} stopped before it answered.")
    answer: Response = json.loads(line)
    return answer


def reload_running(data_dir: Path, accept: Collection[str] = ()) -> ReloadReport:
    """Let the host that runs on a data folder take up what has changed. See `HostControl.reload`.

    Raises:
        NotRunning: No host runs there.
        CommandError: It can't. The message says why.
    """
    told = send_command(data_dir, "reload", accept=sorted(accept))
    if "error" in told:  # from a host of another version, or one in trouble
        raise CommandError(f"The running host did not reload: {told['error']}.")
    return ReloadReport.from_plain(told)


def why_unusable(data_dir: Path) -> str | None:
    """Return why this user's host can't use a data folder. None where it can, as far as that shows on looking."""
    place = next(each for each in (data_dir, *data_dir.parents) if os.path.exists(each))  # noqa: PTH110 - Path's raises
    if os.access(place, os.W_OK | os.X_OK):
        return None
    return f"The data folder {data_dir} can't be used: this user may not write to {place}; set another data_dir."


def user_name(uid: int) -> str:
    """Return the name of a user of the system. The number where it has none, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def socket_path(data_dir: Path) -> Path:
    """Return where a host of a data folder listens: in the folder, or where that is too long, in the temporary one."""
    path = data_dir / "control.sock"
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        return path
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"plughost-{os.getuid()}", f"{name}.sock")


def _refuse_strangers(path: Path, data_dir: Path) -> None:
    """Refuse a socket below the temporary folder where others could have put one of theirs.

    Raises:
        PermissionError: Its folder belongs to somebody else, or others may write to it.
        FileNotFoundError: Its folder isn't there.
    """
    folder = path.parent
    if folder == data_dir:
        return
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others could put a socket there: it must be this user's alone", str(folder))


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = False  # what was asked is answered before the host ends

    def __init__(self, path: str, commands: Mapping[str, Callable[..., Response]]) -> None:
        self.commands = commands
        super().__init__(path, _Handler)

    def server_bind(self) -> None:
        """Bind with mode 0600 from the first moment on, without a umask, which would hold for other threads too."""
        with suppress(OSError):  # Linux takes the socket's mode for the file's; others refuse, and get it below
            os.fchmod(self.socket.fileno(), 0o600)
        super().server_bind()
        Path(str(self.server_address)).chmod(0o600)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = 2.0

    def handle(self) -> None:
        try:
            asked = json.loads(self.rfile.readline(_LONGEST_LINE))
            command = self.server.commands[asked.pop("command")]
            takes = inspect.signature(command)
            if "by" in takes.parameters:
                asked["by"] = self._user()
            takes.bind(**asked)
        except (ValueError, KeyError, TypeError, AttributeError, TimeoutError, RecursionError):
            answer: Response = {"error": f"commands are {', '.join(sorted(self.server.commands))}"}
        else:
            answer = _answer(command, asked)
        with suppress(ConnectionError):  # the one who asked has gone
            self.wfile.write(json.dumps(answer, default=str).encode() + b"\n")

    def _user(self) -> str | None:
        """Return who asks, as the system knows it. None where it doesn't."""
        if not hasattr(socket, "SO_PEERCRED"):
            return None
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return user_name(int.from_bytes(credentials[4:8], sys.byteorder))


def _answer(command: Callable[..., Response], arguments: Mapping[str, Any]) -> Response:
    try:
        return command(**arguments)
    except Exception as error:  # noqa: BLE001 - the answer reports it, whatever it was
        return {"error": f"the host failed on this command: {type(error).__name__}: {error}"}
