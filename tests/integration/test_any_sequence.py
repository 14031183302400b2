"""After any sequence of operators' actions and accidents, a host serves what is installed or says why not.

`PLUGHOST_TEST_SEQUENCES` sets the number of sequences with each engine, one by default.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.integration.notes import Lot, Version, zygote

from plughost.testing import store_settings

SEQUENCES: Final = int(os.environ.get("PLUGHOST_TEST_SEQUENCES", "1"))
STEPS: Final = 15
SERVERS: Final = ("waitress", "granian")


TAKEN_UP: Final = st.sampled_from(["nothing", "reload", "reload", "start"])
"""What follows at once on a change of what is installed; it may also be taken up later."""


@dataclass(frozen=True)
class Backup:
    """A backup of the store, and its contents."""

    file: Path
    rows: frozenset[str]
    schema: int


class Operation(RuleBasedStateMachine):
    """A host with the plugin notes, and what it is to be like.

    Attributes:
        installed: The version on the disk; None where none is installed.
        served: The version that the running host serves; None where it serves none.
        schema: The schema of the store; 0 before the first version was served.
        rows: The notes that were acknowledged.
        expected: The state that the running host is to show of the plugin, and a part of its reason.
    """

    def __init__(self, process: subprocess.Popen[str], folder: Path, engine: str, server: str) -> None:
        """Start with an empty host that does not run."""
        super().__init__()
        self.can_back_up = engine == "sqlite" or shutil.which("pg_dump") is not None
        self.installed: Version | None = None
        self.served: Version | None = None
        self.disabled = False
        self.schema = 0
        self.rows: frozenset[str] = frozenset()
        self.expected: tuple[str | None, str] = (None, "")
        self.backups: list[Backup] = []
        self._numbers = count()
        self._stack = ExitStack()
        shutil.rmtree(folder / "data", ignore_errors=True)
        stores = self._stack.enter_context(store_settings(engine))
        self.lot = Lot(folder, process, stores, server)
        self._stack.callback(self.lot.kill)
        self.lot.uninstall()

    def teardown(self) -> None:
        """Check that a good version finds all data, whatever came before."""
        with self._stack:
            self.kill()
            if self.disabled:
                self.enable()
            self._install(Version(max(1, self.schema), next(self._numbers)))
            self.start()
            self.says_what_it_serves()

    # Installed packages.

    @initialize()
    def begin(self) -> None:
        """Serve a first version with some notes."""
        self._install(Version(1))
        self.start()
        self.write(3)

    @rule(more=st.integers(0, 2), then=TAKEN_UP)
    def install_good(self, more: int, then: str) -> None:
        """Install, upgrade or restore a good version, which may migrate the store."""
        self._install(Version(max(1, self.schema + more), next(self._numbers)), then)

    @rule(bad_sql=st.booleans(), then=TAKEN_UP)
    def install_bad(self, bad_sql: bool, then: str) -> None:
        """Upgrade to a version that fails in its migration or elsewhere."""
        self._install(Version(self.schema + 1, next(self._numbers), broken=not bad_sql, bad_sql=bad_sql), then)

    @precondition(lambda self: self.schema > 1)
    @rule(then=TAKEN_UP)
    def downgrade(self, then: str) -> None:
        """Install a version that does not know the store's schema."""
        self._install(Version(self.schema - 1, next(self._numbers)), then)

    @rule(then=TAKEN_UP)
    def uninstall(self, then: str) -> None:
        """Remove the plugin."""
        self.lot.uninstall()
        self.installed = None
        self._take_up(then)

    def _install(self, version: Version, then: str = "nothing") -> None:
        version.install(self.lot.packages)
        self.installed = version
        self._take_up(then)

    def _take_up(self, then: str) -> None:
        if then == "reload" and self.running:
            self.reload()
        elif then == "start":
            if self.running:
                self.kill()
            self.start()

    # The host.

    @precondition(lambda self: not self.running)
    @rule()
    def start(self) -> None:
        """Start the host."""
        self.lot.start()
        self._took_up(self._outcome())

    @precondition(lambda self: self.running)
    @rule()
    def kill(self) -> None:
        """Kill the host with kill -9."""
        self.lot.kill()
        self.served = None

    @precondition(lambda self: self.running)
    @rule()
    def reload(self) -> None:
        """Reload; if the serving plugin would fail, this is refused and changes nothing."""
        report = self.lot.ask("reload")
        state, reason = self._outcome()
        if self.served is not None and state == "failed":
            assert not report["swapped"], report
            assert report["problems"], report
            assert any(part in told for _, told in report["failed"] for part in reason.split("|")), report
            return
        assert report["swapped"], report
        assert report["ok"] == (state != "failed"), report
        self._took_up((state, reason))

    @precondition(lambda self: self.installed is not None and not self.disabled)
    @rule()
    def disable(self) -> None:
        """Disable the plugin; a running host does it at once."""
        code, told = self.lot.run("disable", "notes")
        assert code == 0, told
        self.disabled = True
        if self.running:
            self._took_up(self._outcome())

    @precondition(lambda self: self.installed is not None and self.disabled)
    @rule()
    def enable(self) -> None:
        """Enable the plugin; if it fails, the command says so."""
        code, told = self.lot.run("enable", "notes")
        self.disabled = False
        state, reason = self._outcome()
        if not self.running:
            assert code == 0, told
            return
        assert code == (1 if state == "failed" else 0), told
        assert state != "failed" or any(part in " ".join(told.split()) for part in reason.split("|")), told
        self._took_up((state, reason))

    # Data.

    @precondition(lambda self: self.running)
    @rule(number=st.integers(1, 5))
    def write(self, number: int) -> None:
        """Add notes: each is acknowledged, or refused because the service doesn't exist."""
        with self.lot.client() as client:
            for _ in range(number):
                text = f"note {next(self._numbers)}"
                status = client.post("/notes", json={"text": text}).status_code
                assert status == (404 if self.served is None else 201), self.lot.output.read_text()[-4000:]
                self.rows |= {text} if status == 201 else set()

    @precondition(lambda self: self.can_back_up and self.fits and self.schema)
    @rule()
    def backup(self) -> None:
        """Back up the store, whether or not the host runs."""
        file = self.lot.folder / f"backup-{next(self._numbers)}"
        code, told = self.lot.run("stores", "backup", "notes", str(file))
        assert code == 0, told
        self.backups.append(Backup(file, self.rows, self.schema))

    @precondition(lambda self: self.fits and self.backups)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Restore a backup; while the host serves the store, this is refused and changes nothing."""
        backup = data.draw(st.sampled_from(self.backups))
        code, told = self.lot.run("stores", "restore", "--yes", "notes", str(backup.file))
        assert code == (0 if self.served is None else 1), told
        if self.served is None:
            self.rows, self.schema = backup.rows, backup.schema

    @invariant()
    def says_what_it_serves(self) -> None:
        """The host serves the installed version with all acknowledged notes, or says what it doesn't serve and why."""
        if not self.running:
            return
        state, reason = self.lot.state()
        wanted, parts = self.expected
        assert state == wanted, (state, reason, self.lot.output.read_text()[-4000:])
        assert any(part in reason for part in parts.split("|")), reason
        if self.served is not None:
            assert sorted(self.lot.notes()) == sorted(self.rows)

    @property
    def running(self) -> bool:
        """Whether the host runs."""
        return self.lot.process is not None

    @property
    def fits(self) -> bool:
        """Whether a good version is installed whose schema is not older than the store's."""
        return self.installed is not None and self.installed.good and self.installed.schema == self.schema

    def _outcome(self) -> tuple[str | None, str]:
        """Return the expected state of the installed version, and parts of the reason, one of which must be given."""
        version = self.installed
        if version is None:
            return None, ""
        if self.disabled:
            return "disabled", ""
        reasons = [
            *(["newer"] if version.schema < self.schema else []),
            *(["broken on purpose"] if version.broken else []),
            *(["nonsense", "0001", "checksum", "changed"] if version.bad_sql else []),
        ]
        return ("failed", "|".join(reasons)) if reasons else ("active", "")

    def _took_up(self, outcome: tuple[str | None, str]) -> None:
        self.expected = outcome
        self.served = self.installed if outcome[0] == "active" else None
        if self.served is not None:
            self.schema = max(self.schema, self.served.schema)


@pytest.mark.parametrize("number", range(SEQUENCES))
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_after_any_sequence_the_host_serves_or_says_why_not(engine: str, number: int, tmp_path: Path) -> None:
    """Whatever is installed, changed, disabled, backed up, restored, reloaded, killed or started, no row is lost."""
    often = settings(
        max_examples=2,  # the first one does next to nothing
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # shrinking would take hours
        suppress_health_check=list(HealthCheck),
    )
    with zygote(tmp_path) as process:

        @seed(number)  # a sequence that fails is to fail again
        def begin() -> Operation:
            return Operation(process, tmp_path, engine, SERVERS[number % 2])

        run_state_machine_as_test(begin, settings=often)  # type: ignore[arg-type] # a factory will do
