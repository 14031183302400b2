"""Failed logins are counted per account and address, and per address."""

from __future__ import annotations

import time

import pytest

from plughost.ratelimits import RateLimits
from plughost_library_auth.throttle import MAX_WAIT, LoginThrottle


@pytest.fixture
def throttle() -> LoginThrottle:
    """A throttle with the default limits."""
    return throttle_of(RateLimits())


KNOWN = "198.51.100.7"
"""The only address from which an account has logged in before."""


def throttle_of(limits: RateLimits) -> LoginThrottle:
    """Return a throttle with the default limits, on the given counters."""
    return LoginThrottle(
        account=limits.counter("account", "5/minute"),
        address=limits.counter("address", "20/minute"),
        anywhere=limits.counter("anywhere", "90/hour", longest=MAX_WAIT),
        known=limits.counter("known", "10/hour", longest=MAX_WAIT),
        is_known=lambda email, network: network == KNOWN,
    )


def fail(throttle: LoginThrottle, times: int, email: str = "user@example.org", address: str = "192.0.2.1") -> None:
    """Record this many failed logins."""
    for _ in range(times):
        assert throttle.record_failure(email, address) == 0


def test_an_account_waits_after_its_failures(throttle: LoginThrottle) -> None:
    """Five failures a minute are checked; the wait ends within the minute."""
    fail(throttle, 4)
    assert throttle.seconds_to_wait("user@example.org", "192.0.2.1") == 0
    fail(throttle, 1)
    assert 1 <= throttle.seconds_to_wait("user@example.org", "192.0.2.1") <= 60


def test_another_spelling_is_the_same_account(throttle: LoginThrottle) -> None:
    """Upper case allows no further attempts."""
    fail(throttle, 5)
    assert throttle.seconds_to_wait("USER@example.org", "192.0.2.1") > 0


def test_others_do_not_wait(throttle: LoginThrottle) -> None:
    """Failures of an account from one address don't block it elsewhere, nor other accounts there."""
    fail(throttle, 5)
    assert throttle.seconds_to_wait("user@example.org", "192.0.2.2") == 0
    assert throttle.seconds_to_wait("other@example.org", "192.0.2.1") == 0


def test_an_address_waits_after_failures_of_any_accounts(throttle: LoginThrottle) -> None:
    """Twenty failures of many accounts reach the address's limit."""
    for number in range(20):
        fail(throttle, 1, email=f"user{number}@example.org")
    assert throttle.seconds_to_wait("new@example.org", "192.0.2.1") > 0
    assert throttle.seconds_to_wait("new@example.org", "192.0.2.2") == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [("2001:db8::1", "2001:db8::ffff"), ("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::2%eth0")],
)
def test_a_clients_addresses_are_counted_together(throttle: LoginThrottle, first: str, second: str) -> None:
    """A /64 of IPv6 is one client, and IPv4 is the same in either notation."""
    fail(throttle, 5, address=first)
    assert throttle.seconds_to_wait("user@example.org", second) > 0


def test_an_invalid_address_is_counted_too(throttle: LoginThrottle) -> None:
    """A server may name its peer differently, as on a Unix socket, without bypassing the limits."""
    fail(throttle, 5, address="unix:")
    assert throttle.seconds_to_wait("user@example.org", "unix:") > 0


def test_a_failure_beyond_the_limit_has_to_wait(throttle: LoginThrottle) -> None:
    """Once others have reached the limit, a check that ends must wait, and isn't told that the password was wrong."""
    fail(throttle, 5)
    assert throttle.record_failure("user@example.org", "192.0.2.1") > 0


def test_the_window_ends_after_a_minute(throttle: LoginThrottle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the account may try again."""
    fail(throttle, 5)
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert throttle.seconds_to_wait("user@example.org", "192.0.2.1") == 0


def test_long_names_use_little_memory(throttle: LoginThrottle) -> None:
    """A name of a megabyte is stored as a hash, and so is one with a lone surrogate."""
    fail(throttle, 5, email="x" * 1_000_000)
    fail(throttle, 5, email="\ud800")
    assert max(len(key) for key in throttle.account._memory._windows) < 200


def attack(throttle: LoginThrottle, tries: int, email: str = "user@example.org") -> int:
    """Guess from a new address each time, and return how many guesses were checked."""
    checked = 0
    for number in range(tries):
        address = f"203.0.{number // 256}.{number % 256}"
        if not throttle.seconds_to_wait(email, address):
            checked += 1
            throttle.record_failure(email, address)
    return checked


@pytest.mark.parametrize("email", ["user@example.org", "nobody@example.org"])
def test_a_hundred_guesses_an_hour_are_checked(throttle: LoginThrottle, email: str) -> None:
    """All addresses share ninety guesses, and addresses with an earlier login ten more."""
    checked = attack(throttle, 300, email)
    for _ in range(50):
        if not throttle.seconds_to_wait(email, KNOWN):
            throttle.record_failure(email, KNOWN)
            checked += 1
    assert checked == 95  # five from the known address, which must wait as any other


def test_an_attack_does_not_lock_out_the_users_address(throttle: LoginThrottle) -> None:
    """Whatever strangers try, an address with an earlier login is still checked."""
    attack(throttle, 300)
    assert throttle.seconds_to_wait("user@example.org", "192.0.2.1") > 0
    assert throttle.seconds_to_wait("user@example.org", KNOWN) == 0
    assert throttle.seconds_to_wait("other@example.org", "192.0.2.1") == 0


def test_waits_grow_with_each_further_attempt(throttle: LoginThrottle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt at a locked account prolongs the wait, up to four hours; afterwards the account is checked again."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    attack(throttle, 90)
    waits = [throttle.seconds_to_wait("user@example.org", f"192.0.2.{number}") for number in range(40)]
    assert waits == sorted(waits)
    assert (waits[0], waits[1] - waits[0], waits[-1]) == (4200, 600, MAX_WAIT)
    now += MAX_WAIT - 1
    assert throttle.anywhere.look(next(iter(throttle.anywhere._memory._windows))).remaining == 0
    now += 2
    assert throttle.seconds_to_wait("user@example.org", "192.0.2.1") == 0
