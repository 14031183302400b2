"""Restart: start a successor process, pass it the listening sockets, and stop once it serves.

The service manager, if there is one, is notified (sd_notify(3)).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from plughost._api.errors import CommandError, NotRunning
from plughost._runtime.control import reload_running
from plughost._runtime.sockets import HANDED_OVER

if TYPE_CHECKING:
    from plughost._runtime.control import Control
    from plughost._runtime.sockets import Sockets

PATIENCE: Final = 600.0
"""The seconds within which the successor must serve."""

_CHANNEL: Final = "plughost.predecessor"
_LOCK: Final = "plughost.lock"
_PARENT: Final = ("/bin/sh", "-c", 'trap : TERM; (exec "$@" 2>&0 </dev/null); exit $?', "plughost-restart")
"""A command that starts another one and ends with it. It doesn't end earlier, not even by SIGTERM.

Its standard input is the log, for the other one alone: a shell itself would write there how that one ended.
"""

_STOPPING: Final = {"ok": False, "stopping": True, "reason": "the host is stopping"}


class Restart:
    """Replaces this process by a successor that runs the same command."""

    def __init__(
        self,
        sockets: Sockets,
        control: Control,
        *,
        is_stopping: Callable[[], bool],
        served: Callable[[], object],
        stop: Callable[[], None],
    ) -> None:
        """Prepare. `is_stopping` returns whether this process was asked to stop; `stop`, called at the end, asks it to.

        `served` returns a value that changes when a reload takes effect, and again when its report is made.
        """
        self._sockets = sockets
        self._control = control
        self._is_stopping = is_stopping
        self._served = served
        self._stop = stop
        self._folder = Path.cwd()  # a plugin may change it
        self._lock = threading.Lock()
        self._successor: _Successor | None = None
        self.done = False

    def __call__(self) -> Mapping[str, Any]:
        """Start the successor and wait until it serves. Meanwhile, and if that fails, this process serves on.

        Returns:
            `ok`; the `pid` of the successor, or the `reason` of the failure; and the `seconds` that it took. If
            `stopping`, neither process serves on.
        """
        if not self._lock.acquire(blocking=False):
            return {"ok": False, "reason": "a restart is under way already"}
        try:
            if self._is_stopping():
                return _STOPPING
            if os.getpid() == 1:
                return {"ok": False, "reason": "as process 1 it would take its container along; replace the container"}
            started, served = monotonic(), self._served()
            response = self._start_successor()
            result = {"ok": "pid" in response, **response, "seconds": round(monotonic() - started, 3)}
            if self._is_stopping():  # the successor ends, even if it came to serve
                result = dict(_STOPPING)
            if result["ok"]:
                self.done = True
                if self._successor is not None:
                    self._successor.leave()
                notify(f"MAINPID={result['pid']}")
                if self._served() != served:  # the successor may have loaded what was there before
                    with suppress(NotRunning, CommandError):
                        reload_running(self._control.data_dir)
                self._stop()
            else:
                self._sockets.take_ownership()
            return result
        finally:
            self._lock.release()

    def cancel(self) -> None:
        """Terminate the successor if it does not serve yet, even one that is just being started."""
        if self._successor is not None and not self.done:
            self._successor.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait until a cancelled successor ends, or kill it: it would keep the sockets and the data folder's lock."""
        if self._lock.locked() and self._successor is not None and not self.done:
            self._successor.wait()

    def _start_successor(self) -> dict[str, Any]:
        own_end, successor_end = socket.socketpair()
        with own_end:
            with successor_end:
                descriptors = [
                    (_CHANNEL, successor_end.fileno()),
                    (_LOCK, self._control.lock),
                    *self._sockets.inheritable(),
                ]
                try:
                    self._successor = _Successor(descriptors, self._folder)
                except OSError as error:
                    return {"reason": f"the next process can't be started: {error}"}
                if self._is_stopping():  # `cancel` may not have seen it, or a shell took its signal before it forked
                    self._successor.send_signal(signal.SIGKILL)
            own_end.settimeout(PATIENCE)
            line = b""
            with suppress(TimeoutError, ConnectionError), own_end.makefile("rb") as stream:
                line = stream.readline()
        if line:
            result: dict[str, Any] = json.loads(line)
            if "pid" not in result:
                self._successor.wait()
            return result
        code = self._successor.wait()
        outcome = f"did not serve within {PATIENCE:g} s" if code is None else f"ended with {code} and never served"
        return {"reason": f"the next process {outcome}; its log says why"}


class _Successor:
    """The process that runs this very command and takes over.

    systemd waits only for its own children when it stops a service; it kills any other process at once. The successor
    becomes its child when its parent ends. So under a service manager the parent is not this process, which still has
    requests to answer, but a shell: see `leave`.
    """

    def __init__(self, descriptors: list[tuple[str, int]], folder: Path) -> None:
        """Start it. It inherits the descriptors, each with a name."""
        self._has_parent = _is_managed()
        self._process = subprocess.Popen(  # noqa: S603 - this very command  # nosec B603
            [*(_PARENT if self._has_parent else ()), sys.executable, *sys.orig_argv[1:]],
            pass_fds=[number for _, number in descriptors],
            env={**os.environ, HANDED_OVER: json.dumps(descriptors)},
            cwd=folder,
            stdin=2 if self._has_parent else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if self._has_parent else None,
            process_group=0 if self._has_parent else None,
        )

    def wait(self) -> int | None:
        """Wait for it to end, and return its exit code; after 5 s, kill it."""
        try:
            return self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self._process.wait()
            return None

    def leave(self) -> None:
        """Make it a child of the service manager, if there is one."""
        if self._has_parent:
            self._process.kill()
            self._process.wait()

    def send_signal(self, number: int) -> None:
        if not self._has_parent:
            self._process.send_signal(number)
        elif self._process.poll() is None:  # otherwise the number may be another group's
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, number)


class Predecessor:
    """The process that this one replaces. The first process has none: see `exists`."""

    def __init__(self, inherited: Mapping[str, int]) -> None:
        """Find the channel to it, and the lock of the data folder, among the inherited descriptors."""
        descriptor = inherited.get(_CHANNEL)
        self._channel = socket.socket(fileno=descriptor) if descriptor is not None else None
        self.lock = inherited.get(_LOCK)

    @property
    def exists(self) -> bool:
        return self._channel is not None

    def report(self, **message: Any) -> None:
        """Report the `pid` of this process once it serves, or the `reason` why it can't."""
        if self._channel is None:
            return
        with self._channel, suppress(OSError):  # the predecessor may have been killed
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        self._channel = None


def notify(state: str) -> None:
    """Send a state, such as `READY=1`, to the service manager, if there is one."""
    if not _is_managed():
        return
    address = os.environ["NOTIFY_SOCKET"]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect("\0" + address[1:] if address.startswith("@") else address)
        connection.sendall(state.encode())


def _is_managed() -> bool:
    return os.environ.get("NOTIFY_SOCKET", "").startswith(("/", "@"))
