"""Which passwords are accepted, and that every check costs the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import pytest
from pydantic import SecretStr

from plughost_library_auth.concurrency import FairSemaphore
from plughost_library_auth.settings import User
from plughost_library_auth.users import UserStore, demo_users, hash_password

OTHERS = "somebody@example.org"


def user(email: str = "user@example.org", password: bytes = b"right", rounds: int = 4) -> User:
    """Return a user with a password."""
    hashed = bcrypt.hashpw(password, bcrypt.gensalt(rounds)).decode()
    return User(email=email, password_hash=SecretStr(hashed), role="user")


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bcrypt rounds of each later check."""
    done: list[int] = []
    check = bcrypt.checkpw

    def counted(password: bytes, hashed: bytes) -> bool:
        done.append(2 ** int(hashed[4:6]))
        return check(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    return done


@pytest.mark.parametrize("email", ["user@example.org", "USER@Example.ORG"])
def test_the_right_password_is_accepted(email: str) -> None:
    """The case of the e-mail address does not matter."""
    store = UserStore([user()], rounds=4)
    found = store.verify(email, "right")
    assert found is not None
    assert found.email == "user@example.org"


@pytest.mark.parametrize("password", ["wrong", "", "Right", "right ", "right\0", "right\0right", "\ud800"])
def test_a_wrong_password_is_refused(password: str) -> None:
    """This includes other cases, spaces and NUL."""
    assert UserStore([user()], rounds=4).verify("user@example.org", password) is None


@pytest.mark.parametrize("email", ["u\u017fer@example.org", "user@example.org\u200b", "u\uff53er@example.org"])
def test_a_similar_name_is_another_user(email: str) -> None:
    """Only A to Z and a to z are folded; Unicode's other foldings are not."""
    assert UserStore([user()], rounds=4).verify(email, "right") is None


@pytest.mark.parametrize("email", ["nobody@example.org", "", "\0", "x" * 100_000, "user@example.org "])
def test_an_unknown_user_is_refused(email: str) -> None:
    """There is no login with a name that does not exist."""
    assert UserStore([user()], rounds=4).verify(email, "right") is None


def test_a_password_over_72_bytes_is_wrong(work: list[int]) -> None:
    """Bcrypt would compare only the first 72 bytes; the password is refused after the same work."""
    store = UserStore([user(password=b"x" * 72)], rounds=4)
    assert store.verify("user@example.org", "x" * 72) is not None
    assert store.verify("user@example.org", "x" * 73) is None
    assert store.verify("user@example.org", "x" * 71 + "é") is None
    assert work == [2**4] * 3


@pytest.mark.parametrize(
    ("email", "password"),
    [
        ("cheap@example.org", "right"),
        ("cheap@example.org", "wrong"),
        ("dear@example.org", "right"),
        ("dear@example.org", "wrong"),
        ("nobody@example.org", "right"),
        ("", ""),
        ("dear@example.org", "x" * 100),
    ],
)
def test_every_check_costs_the_same(work: list[int], email: str, password: str) -> None:
    """For any user, password and hash, the rounds of bcrypt are those of the most expensive hash."""
    store = UserStore([user("cheap@example.org", rounds=4), user("dear@example.org", rounds=7)], rounds=12)
    store.verify(email, password)
    assert sum(work) == 2**7


def test_a_check_without_users_costs_the_configured_rounds(work: list[int]) -> None:
    """An empty store does not answer faster than one with users."""
    assert UserStore([], rounds=5).verify("nobody@example.org", "x") is None
    assert work == [2**5]


def test_checks_wait_for_a_free_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more checks run at once than there are slots; the others wait, and all are answered."""
    store = UserStore([user(rounds=8)], rounds=8, semaphore=FairSemaphore(2))
    check, running, most = bcrypt.checkpw, 0, 0
    lock, full = threading.Lock(), threading.Barrier(2)

    def observed(password: bytes, hashed: bytes) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(30)  # passes once two threads are here, so two do run at once
        right = check(password, hashed)  # long enough for all other threads to arrive here, if they may
        with lock:
            running -= 1
        return right

    monkeypatch.setattr(bcrypt, "checkpw", observed)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: store.verify("user@example.org", "right"), range(8)))
    assert most == 2
    assert all(found)


def test_a_printed_hash_is_accepted() -> None:
    """The output of `hash-password` is a valid password_hash."""
    hashed = hash_password("pässword", 10)
    store = UserStore([User(email=OTHERS, password_hash=SecretStr(hashed), role="admin")], rounds=10)
    assert store.verify(OTHERS, "pässword") is not None


@pytest.mark.parametrize(("password", "reason"), [("", "empty"), ("é" * 37, "74 bytes"), ("a\0b", "NUL")])
def test_an_unhashable_password_is_refused(password: str, reason: str) -> None:
    """An empty password, one that bcrypt would cut, and one with NUL are refused with the reason."""
    with pytest.raises(ValueError, match=reason):
        hash_password(password, 4)


def test_the_demo_users_are_those_in_the_contract() -> None:
    """`--dev` has a user and an administrator whose passwords are their roles."""
    store = UserStore(demo_users().values(), rounds=4)
    roles = {name: store.verify(f"{name}@example.org", name) for name in ("user", "admin")}
    assert [found and found.role for found in roles.values()] == ["user", "admin"]
