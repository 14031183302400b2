"""Counting in memory: exact, and bounded whoever asks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import BaseModel, ValidationError

from plughost.ratelimits import Limit, RateLimits, network_of
from plughost.ratelimits._memory import MemoryWindows


def test_hits_of_many_threads_are_counted_once_each() -> None:
    """However threads meet, no two hits make the same count, and none is lost."""
    windows = MemoryWindows(3600)
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: windows.hit("client")[0], range(4000)))
    assert sorted(counts) == list(range(1, 4001))


def test_a_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time a client starts again from nothing, and the old window is forgotten."""
    windows = MemoryWindows(60)
    assert [windows.hit("a")[0], windows.hit("a")[0], windows.look("a")[0]] == [1, 2, 2]
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert windows.look("a") == (0, 60)
    assert windows.hit("b") == (1, 60)
    assert len(windows) == 1


def test_memory_is_bounded_against_any_number_of_clients() -> None:
    """Past the most that are kept the oldest is forgotten, and whoever still asks is counted on."""
    windows = MemoryWindows(3600, max_keys=100)
    for number in range(1000):
        windows.hit(f"client {number}")
    assert len(windows) == 100
    assert windows.hit("client 999")[0] == 2
    assert windows.hit("client 0")[0] == 1


def test_a_client_that_comes_back_does_not_outlive_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that was renewed stands behind older ones, so that those are forgotten first."""
    windows = MemoryWindows(60, max_keys=2)
    windows.hit("a")
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + 61)
    windows.hit("b")
    windows.hit("a")
    windows.hit("c")
    assert [windows.look(key)[0] for key in "abc"] == [1, 0, 1]


def test_keys_of_any_length_are_kept_short() -> None:
    """Megabytes of a made-up name, or a lone surrogate, are counted as any other key."""
    counter = RateLimits().counter("test/keys", "2/hour")
    for key in ("x" * 1_000_000, "\ud800"):
        assert [counter.hit(key).exceeded for _ in range(3)] == [False, False, True]
    assert max(len(key) for key in counter._memory._windows) == 64


def test_usage_tells_what_is_left() -> None:
    """Looking counts nothing; what is left never falls below zero; the end is within the window."""
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
def test_one_customer_s_addresses_count_together(address: str, network: str) -> None:
    """A /64 of IPv6 is one client, IPv4 is the same in either notation, and what is no address is a client too."""
    assert network_of(address) == network


class _Settings(BaseModel):
    limit: Limit


@pytest.mark.parametrize("text", ["", "often", "0/minute", "-1/minute", "5/minute;3/second", "5/fortnight"])
def test_a_limit_that_makes_no_sense_is_refused(text: str) -> None:
    """A limit is one amount per time, and allows something."""
    with pytest.raises(ValidationError, match="such as 100/minute or 5 per 2 hours, not "):
        _Settings(limit=text)
    with pytest.raises(ValueError, match="the limit of the counter test/default must be one limit"):
        RateLimits().counter("test/default", text)


@pytest.mark.parametrize("text", ["100/minute", "5 per 2 hours", "1/second"])
def test_a_limit_is_written_as_the_library_has_it(text: str) -> None:
    """What `limits` parses is taken."""
    assert _Settings(limit=text).limit == text


def test_a_clock_that_is_turned_back_makes_no_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows end by a clock that nobody sets."""
    windows = MemoryWindows(60)
    windows.hit("a")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert windows.look("a")[1] <= 60
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert windows.look("a") == (0, 60)


def test_growing_waits_begin_anew_with_each_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is forgotten a window's length after its last hit; each one too many makes that longer, up to a bound."""
    counter = RateLimits().counter("test/growing", "3/hour", longest=2 * 3600)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert [counter.hit("a").reset for _ in range(5)] == [3600, 3600, 3600, 4200, 4800]
    assert max(counter.hit("a").reset for _ in range(50)) == 7200
    now += 7199
    assert counter.look("a").remaining == 0
    now += 2
    assert counter.look("a").remaining == 3
