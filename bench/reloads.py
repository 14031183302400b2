"""Watches the memory of a host that is reloaded again and again under load."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench.load import Target, burst
from bench.plot import line
from bench.rows import ROWS
from bench.servers import ROOT, Server

PICTURE: Final = ROOT / "docs" / "performance-reloads.svg"
PATIENCE: Final = 120.0


def watch_reloads(server: Server, times: int, *, write: bool) -> None:
    """Reload a host repeatedly under load, and print its memory and failed requests.

    Args:
        server: plughost.
        times: The number of reloads.
        write: Whether to draw the picture of docs/performance.md.
    """
    server.database.fill(100)
    row = next(row for row in ROWS if row.name == "stored-get")
    stop, answered, failed = threading.Event(), [0], [0]

    def load() -> None:
        while not stop.is_set():
            sample = burst(Target(url=server.url(row.path), connections=8), "http", 5)
            answered[0] += sample.requests
            failed[0] += sample.failed
            if sample.failed:
                print(f"failed: {sample.why}", flush=True)

    thread = threading.Thread(target=load)
    thread.start()
    memory = [server.memory()]
    try:
        for number in range(1, times + 1):
            reload(server, partial(_toggle_limits, number))
            memory.append(server.memory())
            if number % max(times // 10, 1) == 0:
                print(f"{number} reloads: {memory[-1] / 2**20:.1f} MiB", flush=True)
    finally:
        stop.set()
        thread.join()
    print(f"{answered[0]:,} requests were answered meanwhile, and {failed[0]} failed.")
    if write:
        title = f"Memory over {times:,} reloads, with {answered[0]:,} requests meanwhile, of which {failed[0]} failed"
        PICTURE.write_text(
            line(title, [each / 2**20 for each in memory], f"{times:,} reloads", "MiB"), encoding="utf-8"
        )


def reload(server: Server, change: Callable[[str], str]) -> None:
    """Reload a host with changed settings, and wait for the result.

    Args:
        server: plughost.
        change: Returns the new form of a line of its settings.

    Raises:
        SystemExit: The reload failed, or didn't end.
    """
    file = server.folder / "plughost.toml"
    file.write_text("".join(f"{change(line)}\n" for line in file.read_text().splitlines()))
    log = server.folder / "log"
    at = log.stat().st_size
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while (event := _reload_event(log, at)) is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"bench: a reload did not end within {PATIENCE:g} s; see {log}")
        time.sleep(0.01)
    if not event["ok"]:
        raise SystemExit(f"bench: a reload failed: {event}")


def _toggle_limits(number: int, setting: str) -> str:
    """Change settings so that a plugin in memory and one with a store are rebuilt."""
    values = {"max_products": str(10**9 + number % 2), "rate_limit": f'"{10**9 + number % 2}/minute"'}
    name = setting.split(" =", maxsplit=1)[0]
    return f"{name} = {values[name]}" if name in values else setting


def _reload_event(log: Path, at: int) -> dict[str, object] | None:
    """Return the first reload event in the log after an offset. None if there is none yet."""
    with log.open(encoding="utf-8") as lines:
        lines.seek(at)
        found = [json.loads(each) for each in lines if each.startswith("{") and each.endswith("}\n")]
    return next((each for each in found if each["event"] == "reload"), None)
