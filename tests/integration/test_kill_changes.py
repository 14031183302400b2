"""A host is killed while its plugin is upgraded, rolled back or removed under load: no acknowledged note is lost.

`PLUGHOST_TEST_CHANGES` sets the number of kills with each engine, three by default.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from tests.integration.notes import Lot, Version, lot

from plughost._api.errors import NotRunning
from plughost.testing import store_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANGES: Final = int(os.environ.get("PLUGHOST_TEST_CHANGES", "3"))
BATCH: Final = 10
"""Kills with one host's data."""

CLIENTS: Final = 4
LOOK: Final = 4
"""In each fourth change, another command opens the store's file as well."""

ENGINES: Final = ("sqlite", "postgresql")
SERVERS: Final = ("waitress", "granian")
KINDS: Final = ("upgrade", "migrate", "fail", "bad sql", "downgrade", "uninstall")


@dataclass
class Writers:
    """Clients that add notes, each with its own text, until the host is gone.

    Attributes:
        sent: The texts that were sent.
        acknowledged: Those that were answered 201.
        answers: How often each status was answered since the host was started.
    """

    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    responses: Counter[int] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=count)
    _answered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self, host: Lot) -> None:
        """Start writing."""
        self.responses.clear()
        self._answered = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._write, args=(host.client(),)) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _write(self, client: httpx.Client) -> None:
        with client, suppress(httpx.TransportError):
            while True:
                text = f"note {next(self._numbers)}"
                self.sent.add(text)
                answer = client.post("/notes", json={"text": text})
                if answer.status_code == 201:
                    self.acknowledged.add(text)
                self.responses[answer.status_code] += 1
                self._answered.release()

    def await_answers(self, number: int) -> None:
        """Wait for a further number of answers."""
        for _ in range(number):
            assert self._answered.acquire(timeout=120), "the host answers no more"

    def join(self) -> None:
        """Wait until every client has seen that the host is gone."""
        for thread in self._threads:
            thread.join()

    def check(self, host: Lot) -> None:
        """Check that every acknowledged note is there, and none twice or from nowhere."""
        listed = host.notes()
        assert len(listed) == len(set(listed)), "a note is there twice"
        assert not self.acknowledged - set(listed), "acknowledged notes are lost"
        assert set(listed) <= self.sent


def change(host: Lot, target: Version | None, *, look: bool) -> None:
    """Install a version or none, and reload while the host lives, with or without a check of the stores."""
    if target is None:
        host.uninstall()
    else:
        target.install(host.packages)
    with suppress(NotRunning, ConnectionError):
        host.ask("reload")
    if look:
        assert host.run("stores")[0] == 0


def target_of(kind: str, now: Version) -> Version | None:
    """Return the version to which a kind of change leads."""
    build = now.build + 1
    versions = {
        "upgrade": Version(now.schema, build),
        "migrate": Version(now.schema + 1, build),
        "fail": Version(now.schema + 1, build, broken=True),
        "bad sql": Version(now.schema + 1, build, bad_sql=True),
        "downgrade": Version(max(1, now.schema - 1), build),
    }
    return versions.get(kind)


def settle(host: Lot, now: Version, target: Version | None) -> Version:
    """Check that the host serves what is installed or says why not, and restore a good version; return it."""
    state, reason = host.state()
    if target is not None and target.good and target.schema >= now.schema:
        assert (state, reason) == ("active", "")
        return target
    if target is None:
        assert state is None
    elif target.good and state == "active":  # it was downgraded to the store's schema
        return target
    else:
        told = {"broken": "broken on purpose", "bad_sql": "nonsense"}
        expected = next((text for name, text in told.items() if getattr(target, name)), "newer")
        assert state == "failed", (state, reason)
        assert expected in reason, reason
    again = Version(now.schema, now.build + 2)
    again.install(host.packages)
    report = host.ask("reload")
    assert report["ok"], report
    return again


@pytest.mark.parametrize("batch", range(-(-CHANGES // BATCH)))
@pytest.mark.parametrize("engine", ENGINES)
def test_acknowledged_notes_survive_kill_9_in_a_change(engine: str, batch: int, tmp_path: Path) -> None:
    """Kill -9 interrupts upgrades, failed ones, rollbacks and removals under load at a random moment.

    After each, every acknowledged note is there, none twice, and the host serves what is installed or says why
    not. Every answer is 201, or 503 during a breaking migration, or 404 once the plugin is removed.
    """
    chance = random.Random(f"{engine} {batch}")  # a failing test must fail again
    writers = Writers()
    now = Version(1)
    target: Version | None = now
    server = SERVERS[(batch + ENGINES.index(engine)) % 2]  # each with both
    with store_settings(engine) as settings, lot(tmp_path, settings, server) as host:
        now.install(host.packages)
        for number in range(batch * BATCH, min(CHANGES, (batch + 1) * BATCH)):
            host.start()
            now = settle(host, now, target)
            writers.check(host)
            kind = KINDS[number % len(KINDS)]
            target = target_of(kind, now)
            writers.begin(host)
            writers.await_answers(chance.randrange(20))
            look = number % LOOK == 0
            changing = threading.Thread(target=change, args=(host, target), kwargs={"look": look})
            changing.start()
            writers.await_answers(chance.randrange(120))
            host.kill()
            changing.join()
            writers.join()
            gone = {404} if target is None else set()
            assert writers.responses.keys() <= {201, 503} | gone, (
                kind,
                writers.responses,
                host.output.read_text()[-4000:],
            )
        host.start()
        settle(host, now, target)
        writers.check(host)
    assert writers.acknowledged
