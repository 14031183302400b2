"""Revoked tokens when the clock is set, or those of hosts differ, and of many at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from plughost_library_auth.records import Records
from plughost_library_auth.revocations import Revocations

if TYPE_CHECKING:
    import pytest

    from plughost.stores import OpenStore


def test_a_token_stays_revoked_if_the_clock_was_ahead_for_a_while(
    store: OpenStore[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that is ahead the token has expired; when the clock is right again, it is valid but for that."""
    revocations, now = Revocations(Records(store), {}), time.time()
    revocations.revoke("revoked before", int(now) + 900)
    revocations.refresh()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    revocations.revoke("revoked meanwhile", int(now) + 4500)
    revocations.refresh()
    monkeypatch.setattr(time, "time", lambda: now)
    revocations.refresh()
    assert "revoked before" in revocations
    assert "revoked meanwhile" in revocations


def test_a_revocation_is_seen_if_its_host_is_behind_by_a_minute_and_commits_late(
    store: OpenStore[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host reads the revocations between their time and their commit, and finds it after the commit."""
    now, records = time.time(), Records(store)
    other = Revocations(records, {})
    monkeypatch.setattr(time, "time", lambda: now + 60 + 35)  # a lock was waited for, and a slow statement
    other.refresh()
    monkeypatch.setattr(time, "time", lambda: now)
    records.revoke("late", int(now) + 900)
    monkeypatch.setattr(time, "time", lambda: now + 60 + 36)
    other.refresh()
    assert "late" in other


def test_a_logout_deletes_few_of_many_expired_revocations(store: OpenStore[Any]) -> None:
    """A logout takes the same time after a day with many: it deletes more than it adds, but not all at once."""
    records = Records(store)
    rows = ", ".join(f"('old {number}', 0, 0)" for number in range(150))
    store.run(lambda session: session.change(f"INSERT INTO library_revoked_tokens VALUES {rows}"))
    left = []
    for token in ("one", "two"):
        records.revoke(token, int(time.time()) + 900)
        left.append(store.read(lambda session: session.rows("SELECT COUNT(*) FROM library_revoked_tokens"))[0][0])
    assert left == [51, 2]
