"""The control socket: how commands reach the host that runs on the same data folder.

The host listens on a Unix socket in its data folder, which only its own user can reach. A request is one line of
JSON: `{"command": "reload"}` and the command's arguments as further members. The response is one line of JSON, too.
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
from time import monotonic
from typing import Any, Final

from plughost._api.errors import CommandError, NotRunning
from plughost._api.reload_report import ReloadReport
from plughost._files import make_folder

Response = Mapping[str, Any]

_MAX_PATH: Final = 100  # a Unix socket's path may have 107 bytes on Linux, 103 elsewhere
_MAX_LINE: Final = 64 * 1024
_END_SECONDS: Final = 2.0


class AlreadyRunning(Exception):  # noqa: N818 - a state, not an error
    """Another host runs on the data folder."""


class NotPermitted(NotRunning):
    """This user may not connect to a host on the data folder, and so can't know whether one runs."""


class StoppedMeanwhile(NotRunning):
    """The host got the command, and stopped before it answered."""


class Control:
    """The control socket of a host: runs the commands that reach it."""

    def __init__(self, data_dir: Path, commands: Mapping[str, Callable[..., Response]]) -> None:
        """Prepare to listen for commands. Each is a function from the command's arguments to the response.

        A function with the parameter `by` gets the name of the system user who sent the command.
        """
        self.data_dir = data_dir
        self._path = socket_path(data_dir)
        self._commands = commands
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._inode = 0
        self.lock = -1
        """The descriptor that locks the data folder; -1 before `claim`."""

    def claim(self, inherited: int | None = None) -> None:
        """Lock the data folder, so that one host runs on it at a time. A successor on the same folder inherits it.

        Raises:
            AlreadyRunning: Another host has the lock.
            OSError: The folder can't be made or written.
        """
        try:
            make_folder(self.data_dir)
            self.lock = os.open(self.data_dir / "host.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"The data folder {self.data_dir} can't be used: {error.strerror}; set another data_dir."
            raise type(error)(message) from error
        if inherited is not None:
            if os.path.sameopenfile(inherited, self.lock):
                inherited, self.lock = self.lock, inherited
            os.close(inherited)  # of another data folder, if the setting has changed
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"Another host runs on the data folder {self.data_dir} (see plughost status): "
                "stop it first, or set another data_dir."
            ) from None

    def listen(self) -> None:
        """Listen in place of the previous listener. Commands wait for `start`."""
        make_folder(self._path.parent)
        _require_own_folder(self._path, self.data_dir)
        new_path = self._path.with_suffix(".new")
        new_path.unlink(missing_ok=True)
        self._server = _Server(str(new_path), _Handler)
        self._server.commands, self._server.handlers = self._commands, []
        self._inode = new_path.stat().st_ino
        new_path.replace(self._path)

    def start(self) -> None:
        """Run commands, in a thread of its own."""
        if self._server is None:
            self.listen()
        assert self._server is not None, "listen() has set it"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer the commands that have come, then close the socket and this process's lock of the data folder.

        A command that takes longer than 2 s from now on, such as a reload that hangs, gets no answer.
        """
        if self._server is not None:
            if self._thread is not None:
                self._server.shutdown()
            self._server.server_close()
            deadline = monotonic() + _END_SECONDS
            for handler in self._server.handlers:
                handler.join(max(0.0, deadline - monotonic()))
            with suppress(OSError):  # the folder may be gone
                if self._path.stat().st_ino == self._inode:  # otherwise the next host listens there
                    self._path.unlink()
            self._server = self._thread = None
        if self.lock != -1:
            os.close(self.lock)
            self.lock = -1


def send_command(data_dir: Path, command: str, **arguments: Any) -> Response:
    """Send a command to the host that runs on a data folder, and return its response.

    Raises:
        NotRunning: No host listens there; as `NotPermitted`, this user may not connect.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            _require_own_folder(socket_path(data_dir), data_dir)
            connection.connect(str(socket_path(data_dir)))
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            raise NotRunning(f"No host is running on the data folder {data_dir}.") from None
        except PermissionError:
            raise NotPermitted(
                f"The data folder {data_dir} is another user's, who alone can tell whether a host runs on it: "
                "run this command as that user."
            ) from None
        line = b""
        with suppress(ConnectionError), connection.makefile("rb") as responses:
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = responses.readline()
    if not line:
        raise StoppedMeanwhile(f"The host on the data folder {data_dir} stopped before it answered.")
    response: Response = json.loads(line)
    return response


def reload_running(data_dir: Path, accept: Collection[str] = ()) -> ReloadReport:
    """Reload the host that runs on a data folder. See `HostControl.reload`.

    Raises:
        NotRunning: No host runs there.
        CommandError: It did not reload, or died of it. The message says why.
    """
    try:
        response = send_command(data_dir, "reload", accept=sorted(accept))
    except StoppedMeanwhile as error:
        raise CommandError(str(error)) from None
    if "error" in response:  # from a host of another version, or one whose reload raised
        raise CommandError(f"The running host did not reload: {response['error']}.")
    return ReloadReport.from_plain(response)


def data_dir_problem(data_dir: Path) -> str | None:
    """Return why this user's host can't use a data folder, and what to do; None if the permissions allow it."""
    existing = next(each for each in (data_dir, *data_dir.parents) if os.path.exists(each))  # noqa: PTH110 - Path's raises
    if not existing.is_dir():
        why = f"{existing} is no folder; set another data_dir."
    elif not os.access(existing, os.W_OK | os.X_OK):
        why = f"this user may not write to {existing}; give it to the host's user, or set another data_dir."
    else:
        return None
    return f"The data folder {data_dir} can't be used: {why}"


def user_name(uid: int) -> str:
    """Return the name of a system user; the number if it has no name, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def socket_path(data_dir: Path) -> Path:
    """Return the socket's path: in the data folder, or in the temporary folder if that path would be too long."""
    path = data_dir / "control.sock"
    if len(os.fsencode(path)) <= _MAX_PATH:
        return path
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"plughost-{os.getuid()}", f"{name}.sock")


def _require_own_folder(path: Path, data_dir: Path) -> None:
    """Refuse a socket outside the data folder, by PermissionError, unless its folder is this user's alone."""
    folder = path.parent
    if folder == data_dir:
        return
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others could put a socket there: it must be this user's alone", str(folder))


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    commands: Mapping[str, Callable[..., Response]]
    handlers: list[threading.Thread]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Run a command in a thread of its own, which a process that ends does not wait for."""
        arguments = request, client_address
        handler = threading.Thread(target=self.process_request_thread, args=arguments, name="command", daemon=True)
        try:
            handler.start()
        except RuntimeError:  # the system allows no further thread
            with suppress(OSError):  # the client has gone
                request.settimeout(_Handler.timeout)
                request.recv(_MAX_LINE)  # closing a connection with unread bytes would drop the answer
                request.sendall(b'{"error": "the system allows the host no further thread for this command"}\n')
            self.shutdown_request(request)
        else:
            self.handlers = [*filter(threading.Thread.is_alive, self.handlers), handler]

    def server_bind(self) -> None:
        """Bind with mode 0600 from the start. A umask would affect other threads, too."""
        with suppress(OSError):  # Linux gives the file the socket's mode; elsewhere chmod below does
            os.fchmod(self.socket.fileno(), 0o600)
        super().server_bind()
        Path(str(self.server_address)).chmod(0o600)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = 2.0

    def handle(self) -> None:
        try:
            arguments = json.loads(self.rfile.readline(_MAX_LINE))
            command = self.server.commands[arguments.pop("command")]
            signature = inspect.signature(command)
            if "by" in signature.parameters:
                arguments["by"] = self._peer_user()
            signature.bind(**arguments)
        except (ValueError, KeyError, TypeError, AttributeError, TimeoutError, RecursionError):
            response: Response = {"error": f"commands are {', '.join(sorted(self.server.commands))}"}
        else:
            try:
                response = command(**arguments)
            except BaseException as error:  # noqa: BLE001 - the response reports it; a query may call sys.exit
                response = {"error": f"the host failed on this command: {type(error).__name__}: {error}"}
        with suppress(ConnectionError):  # the client has gone
            self.wfile.write(json.dumps(response, default=str).encode() + b"\n")

    def _peer_user(self) -> str | None:
        """Return the system user at the other end; None where the system can't tell."""
        if not hasattr(socket, "SO_PEERCRED"):
            return None
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return user_name(int.from_bytes(credentials[4:8], sys.byteorder))
