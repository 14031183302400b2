"""Counting in memory: exact, and bounded for any number of clients."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import BaseModel, ValidationError

from plughost.ratelimits import Limit, RateLimits, network_of
from plughost.ratelimits._windows import MemoryWindows


def test_hits_of_many_threads_are_counted_exactly() -> None:
    """No two concurrent hits have the same count, and none is lost."""
    windows = MemoryWindows(3600)
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: windows.hit("client")[0], range(4000)))
    assert sorted(counts) == list(range(1, 4001))


def test_a_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After it a client starts from zero, and the old window is dropped."""
    windows = MemoryWindows(60)
    assert [windows.hit("a")[0], windows.hit("a")[0], windows.look("a")[0]] == [1, 2, 2]
    later = int(time.monotonic()) + 61  # whole, so that sums are exact
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert windows.look("a") == (0, 60)
    assert windows.hit("b") == (1, 60)
    assert len(windows) == 1


def test_memory_is_bounded_against_any_number_of_clients() -> None:
    """Beyond the maximum, the oldest key is dropped, and active clients are still counted."""
    windows = MemoryWindows(3600, max_keys=100)
    for number in range(1000):
        windows.hit(f"client {number}")
    assert len(windows) == 100
    assert windows.hit("client 999")[0] == 2
    assert windows.hit("client 0")[0] == 1


def test_a_returning_client_does_not_outlive_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewed window moves behind older ones, which are dropped first."""
    windows = MemoryWindows(60, max_keys=2)
    windows.hit("a")
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + 61)
    windows.hit("b")
    windows.hit("a")
    windows.hit("c")
    assert [windows.look(key)[0] for key in "abc"] == [1, 0, 1]


def test_long_keys_are_shortened() -> None:
    """A name of megabytes or a lone surrogate is counted like any other key."""
    counter = RateLimits().counter("test/keys", "2/hour")
    for key in ("x" * 1_000_000, "\ud800"):
        assert [counter.hit(key).exceeded for _ in range(3)] == [False, False, True]
    assert max(len(key) for key in counter._memory._windows) == 64


def test_usage_shows_the_remainder() -> None:
    """Reading counts nothing; the remainder is never negative; the end is within the window."""
    counter = RateLimits().counter("test/usage", "2/minute")
    assert counter.look("a").remaining == 2
    usages = [counter.hit("a") for _ in range(3)]
    assert [usage.remaining for usage in usages] == [1, 0, 0]
    assert [usage.exceeded for usage in usages] == [False, False, True]
    assert all(1 <= usage.reset <= 60 for usage in usages)
    assert counter.look("b").remaining == 2


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix:", "unix:"),
    ],
)
def test_addresses_of_one_customer_count_together(address: str, network: str) -> None:
    """A /64 of IPv6 is one client, IPv4 is the same in both notations, and any other text is a client, too."""
    assert network_of(address) == network


class _Settings(BaseModel):
    limit: Limit


@pytest.mark.parametrize(
    "text", ["", "often", "0/minute", "5/0 minutes", "-1/minute", "5/minute;3/second", "5/fortnight"]
)
def test_a_meaningless_limit_is_refused(text: str) -> None:
    """A limit is one amount per time, and allows at least one."""
    with pytest.raises(ValidationError, match="such as 100/minute or 5 per 2 hours, not "):
        _Settings(limit=text)
    with pytest.raises(ValueError, match="the limit of the counter test/default must be one limit"):
        RateLimits().counter("test/default", text)


@pytest.mark.parametrize("text", ["100/minute", "5 per 2 hours", "1/second"])
def test_a_limit_has_the_syntax_of_the_library(text: str) -> None:
    """Any text that `limits` parses is accepted."""
    assert _Settings(limit=text).limit == text


def test_setting_the_clock_back_prolongs_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows use a monotonic clock."""
    windows = MemoryWindows(60)
    windows.hit("a")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert windows.look("a")[1] <= 60
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert windows.look("a") == (0, 60)


def test_growing_waits_restart_with_each_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key expires a window after its last hit; each further one lengthens the window, up to a maximum."""
    counter = RateLimits().counter("test/growing", "3/hour", longest=2 * 3600)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert [counter.hit("a").reset for _ in range(5)] == [3600, 3600, 3600, 4200, 4800]
    assert max(counter.hit("a").reset for _ in range(50)) == 7200
    now += 7199
    assert counter.look("a").remaining == 0
    now += 2
    assert counter.look("a").remaining == 3
