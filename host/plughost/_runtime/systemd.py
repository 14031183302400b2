"""systemd: tell the service manager how this process is doing (sd_notify(3)). Elsewhere this does nothing."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send a state, such as `READY=1`, to the service manager that started this process, where there is one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect("\0" + address[1:] if address.startswith("@") else address)
        connection.sendall(state.encode())
