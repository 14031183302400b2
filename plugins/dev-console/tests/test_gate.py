"""The gate decides who may enter, and for how long."""

from __future__ import annotations

import time

import pytest
from itsdangerous import TimestampSigner

from plughost_dev_console.gate import Gate
from plughost_dev_console.settings import Settings


def _gate(key: bytes = b"k" * 32) -> Gate:
    return Gate(key, {}, {}, Settings())


def test_a_link_works_once() -> None:
    """Its second use is refused, and the session of the first continues."""
    gate = _gate()
    link = gate.new_link()
    cookie = gate.enter(link)
    assert gate.enter(link) is None
    assert gate.session(cookie) is not None


def test_a_link_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is refused after its time."""
    gate = _gate()
    before = int(time.time()) - 601
    with monkeypatch.context() as earlier:
        earlier.setattr(TimestampSigner, "get_timestamp", lambda _: before)
        link = gate.new_link()
    assert gate.enter(link) is None
    assert gate.enter(gate.new_link()) is not None


@pytest.mark.parametrize("link", ["", "x", "a.b.c", "é"])
def test_unsigned_values_are_refused(link: str) -> None:
    """Without the gate's signature, nothing is a link, a session or a token."""
    gate = _gate()
    assert gate.enter(link) is None
    assert gate.session(link) is None
    assert not gate.is_valid_token(link, "session")


def test_a_signature_is_valid_for_one_purpose() -> None:
    """A link is no session, a session no token, and nothing is valid at another host's gate."""
    gate, other = _gate(), _gate(b"o" * 32)
    link = gate.new_link()
    assert gate.session(link) is None
    assert other.enter(link) is None
    cookie = gate.enter(link)
    session = gate.session(cookie)
    assert session is not None
    assert other.session(cookie) is None
    assert not gate.is_valid_token(cookie, session)


def test_a_token_belongs_to_its_session() -> None:
    """One session's token is invalid in another."""
    gate = _gate()
    one, other = (gate.session(gate.enter(gate.new_link())) for _ in range(2))
    assert one is not None
    assert other is not None
    assert gate.is_valid_token(gate.token(one), one)
    assert not gate.is_valid_token(gate.token(one), other)


def test_a_session_ends_after_signing_out() -> None:
    """Its cookie is invalid."""
    gate = _gate()
    cookie = gate.enter(gate.new_link())
    session = gate.session(cookie)
    assert session is not None
    gate.leave(session)
    assert gate.session(cookie) is None


def test_links_and_sessions_are_limited() -> None:
    """Unlimited new links only make the oldest invalid."""
    gate = _gate()
    links = [gate.new_link() for _ in range(100)]
    assert gate.enter(links[0]) is None
    assert gate.enter(links[-1]) is not None
