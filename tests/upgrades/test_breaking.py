"""Older code never serves on a schema after a migration that breaks it, and no client gets a 500."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.upgrades.notes_plugin import ADD, RENAME, create, install, list_notes, notes_host
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.integration.kit import HostProcess

BREAKING = ", breaking=(2,)"


def run_under_load(host: HostProcess, change: Callable[[], Any]) -> tuple[Counter[int], set[str]]:
    """Let clients read and write during a change; return their statuses, and the acknowledged notes."""
    responses: Counter[int] = Counter()
    acknowledged: set[str] = set()
    done = threading.Event()
    url = host.url()

    def ask(client_number: int) -> None:
        with httpx.Client(base_url=url, trust_env=False, timeout=60.0) as client:
            for number in range(100_000):
                text = f"{client_number} {number}"
                created, read = client.post("/notes", json={"text": text}), client.get("/notes")
                for answer in (created, read):
                    responses[answer.status_code] += 1
                    assert answer.status_code != 503 or int(answer.headers["Retry-After"]) > 0
                if created.status_code == 201:
                    acknowledged.add(text)
                if done.is_set():
                    return

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(ask, number) for number in range(4)]
        wait_until(lambda: len(acknowledged) > 20 or any(each.done() for each in clients))
        change()
        done.set()
        for each in clients:
            each.result()
    return responses, acknowledged


@pytest.mark.parametrize(
    ("upgraded", "expected"),
    [
        ((RENAME, "content", BREAKING), {200, 201, 503}),
        ((RENAME, "content", ""), {200, 201, 503}),
        ((ADD, "text", ""), {200, 201}),
    ],
    ids=["breaking", "breaking and not declared", "additive"],
)
def test_an_upgrade_under_load_loses_nothing_and_answers_no_500(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any], upgraded: tuple[str, str, str], expected: set[int]
) -> None:
    """Clients get their answer, or 503 with Retry-After; after an additive migration always their answer."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:

        def upgrade() -> None:
            step, column, declared = upgraded
            install(packages, "2.0", step, column=column, declared=declared)
            report = host.ask("reload")
            assert report["ok"], report

        responses, acknowledged = run_under_load(host, upgrade)
        assert set(responses) <= expected, host.errors.read_text()
        version, notes = list_notes(host)
        assert (version, acknowledged - notes) == ("2.0", set())
        host.process.kill()
        host.process.wait()
    with notes_host(tmp_path, packages, settings) as host:
        assert acknowledged <= list_notes(host)[1]


def test_a_failed_breaking_migration_leaves_the_older_version_serving(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """It answers the requests that waited, on the schema that it knows."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:

        def upgrade() -> None:
            install(packages, "2.0", RENAME, "SELECT nonsense FROM nowhere;", declared=BREAKING, column="content")
            assert host.ask("reload")["swapped"] is False

        responses, acknowledged = run_under_load(host, upgrade)
        assert set(responses) <= {200, 201, 503}, host.errors.read_text()
        version, notes = list_notes(host)
        assert (version, acknowledged - notes) == ("1.0", set())


def test_a_restart_migrates_after_the_older_process_has_left(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """Until then, the next process answers 503 with Retry-After; then it serves."""
    install(packages, "1.0")
    with notes_host(tmp_path, packages, settings) as host:
        before = create(host, 3)
        install(packages, "2.0", RENAME, column="content", declared=BREAKING)
        url = f"{host.url()}/notes"
        answer = host.ask("restart")
        assert answer["ok"], answer
        try:
            assert host.process.wait(60) == 0
            seen = []

            def serves() -> bool:
                seen.append(httpx.get(url, trust_env=False, timeout=60.0))
                return seen[-1].status_code == 200

            wait_until(serves)
            assert {each.status_code for each in seen} <= {200, 503}
            assert (seen[-1].json()["version"], set(seen[-1].json()["notes"])) == ("2.0", before)
        finally:
            os.kill(answer["pid"], signal.SIGKILL)


def test_a_restart_into_a_failing_migration_is_refused(
    tmp_path: Path, packages: Path, settings: Mapping[str, Any]
) -> None:
    """The host tries the migration before the older process leaves, so that this one stays."""
    install(packages, "1.0")
    required = {**settings, "required": ["notes"]}
    with notes_host(tmp_path, packages, required) as host:
        before = create(host, 3)
        install(packages, "2.0", "SELECT nonsense FROM nowhere;", declared=BREAKING)
        answer = host.ask("restart")
        assert (answer["ok"], "0002_step.sql failed" in answer["reason"]) == (False, True), answer
        assert list_notes(host) == ("1.0", before)
