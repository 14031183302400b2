"""Restart: start another process of the same host, hand it the listening sockets, and leave once it serves.

The service manager, where there is one, is told of it (sd_notify(3)).
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
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from plughost._runtime.control import Control
    from plughost._runtime.sockets import Sockets

PATIENCE: Final = 600.0
"""Seconds that the next process has until it serves."""

_LINE: Final = "plughost.predecessor"
_LOCK: Final = "plughost.lock"

# Puts the descriptors where the next process looks for them, and becomes it: only then is its id known.
_BECOME: Final = """
import fcntl, os, sys
given = [int(number) for number in sys.argv[1].split(",")]
end = 3 + len(given)
aside = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, end) for number in given]
for wanted, number in enumerate(aside, 3):
    os.dup2(number, wanted, inheritable=True)
for number in given:
    if number >= end:
        os.close(number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)), LISTEN_FDNAMES=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
"""


class Restart:
    """Replaces this process by another one that does the same."""

    def __init__(
        self, sockets: Sockets, control: Control, *, may: Callable[[], bool], leave: Callable[[], None]
    ) -> None:
        """Do nothing yet. `may` tells whether this process serves; `leave` is called once the next process does."""
        self._sockets = sockets
        self._control = control
        self._may = may
        self._leave = leave
        self._one = threading.Lock()
        self._next: subprocess.Popen[bytes] | None = None
        self.done = False

    def __call__(self) -> Mapping[str, Any]:
        """Start the next process and wait until it serves. This one goes on meanwhile, and where that fails.

        Returns:
            `ok`. The `pid` of the next process, or the `reason` why not, and the `seconds` that it took.
        """
        if not self._one.acquire(blocking=False):
            return {"ok": False, "reason": "a restart is under way already"}
        try:
            if self.done or not self._may():
                return {"ok": False, "reason": "this process is on its way out"}
            if os.getpid() == 1:
                return {"ok": False, "reason": "as process 1 it would take its container along; replace the container"}
            begun = monotonic()
            told = self._try()
            answer = {"ok": "pid" in told, **told, "seconds": round(monotonic() - begun, 3)}
            if answer["ok"]:
                self.done = True
                notify(f"MAINPID={answer['pid']}")
                self._leave()
            else:
                self._sockets.settle()
            return answer
        finally:
            self._one.release()

    def cancel(self) -> None:
        """End the next process if it does not serve yet."""
        if self._next is not None and not self.done:
            self._next.terminate()

    def _try(self) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                passed = [
                    (_LINE, theirs.fileno()),
                    (_LOCK, self._control.lock),
                    *self._sockets.to_hand_on(),
                ]
                try:
                    self._next = _start(passed)
                except OSError as error:
                    return {"reason": f"the next process can't be started: {error}"}
            ours.settimeout(PATIENCE)
            line = b""
            with suppress(TimeoutError, ConnectionError), ours.makefile("rb") as told:
                line = told.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            if "pid" not in answer:
                _end(self._next)
            return answer
        _end(self._next)
        code = self._next.returncode
        how = (
            f"did not serve within {PATIENCE:g} s" if code == -signal.SIGKILL else f"ended with {code} and never served"
        )
        return {"reason": f"the next process {how}; its log says why"}


class Predecessor:
    """The process that started this one to take its place. Nobody, where this is the first."""

    def __init__(self, inherited: Mapping[str, int]) -> None:
        """Take the line to it, and the lock of the data folder, from among the descriptors that it has passed."""
        descriptor = inherited.get(_LINE)
        self._line = socket.socket(fileno=descriptor) if descriptor is not None else None
        self.lock = inherited.get(_LOCK)

    @property
    def exists(self) -> bool:
        """Whether there is one that waits for this process."""
        return self._line is not None

    def tell(self, **message: Any) -> None:
        """Say the `pid` of this process once it serves, or the `reason` why it can't, before it ends."""
        if self._line is None:
            return
        with self._line, suppress(OSError):  # it may have been killed: all the more is this process needed
            self._line.sendall(json.dumps(message).encode() + b"\n")
        self._line = None


def notify(state: str) -> None:
    """Send a state, such as `READY=1`, to the service manager that started this process, where there is one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect("\0" + address[1:] if address.startswith("@") else address)
        connection.sendall(state.encode())


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that is about to end, or end it."""
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(passed: list[tuple[str, int]]) -> subprocess.Popen[bytes]:
    names = ":".join(name for name, _ in passed)
    descriptors = [descriptor for _, descriptor in passed]
    same = [sys.executable, *sys.orig_argv[1:]]
    return subprocess.Popen(  # noqa: S603 - this very command  # nosec B603
        [sys.executable, "-I", "-S", "-c", _BECOME, ",".join(map(str, descriptors)), names, *same],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
    )
