"""Users: who is let in, and that a check costs the same whoever asks."""

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
    """The bcrypt rounds of each check from now on."""
    done: list[int] = []
    check = bcrypt.checkpw

    def counted(password: bytes, hashed: bytes) -> bool:
        done.append(2 ** int(hashed[4:6]))
        return check(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    return done


@pytest.mark.parametrize("email", ["user@example.org", "USER@Example.ORG"])
def test_the_right_password_lets_in(email: str) -> None:
    """A user is found under any case of the e-mail address."""
    store = UserStore([user()], rounds=4)
    found = store.verify(email, "right")
    assert found is not None
    assert found.email == "user@example.org"


@pytest.mark.parametrize("password", ["wrong", "", "Right", "right ", "right\0", "right\0right", "\ud800"])
def test_a_wrong_password_does_not(password: str) -> None:
    """Anything but the password is wrong."""
    assert UserStore([user()], rounds=4).verify("user@example.org", password) is None


@pytest.mark.parametrize("email", ["u\u017fer@example.org", "user@example.org\u200b", "u\uff53er@example.org"])
def test_a_name_that_looks_alike_is_another(email: str) -> None:
    """Only A to Z and a to z are the same; Unicode's foldings are not."""
    assert UserStore([user()], rounds=4).verify(email, "right") is None


@pytest.mark.parametrize("email", ["nobody@example.org", "", "\0", "x" * 100_000, "user@example.org "])
def test_an_unknown_user_is_not_let_in(email: str) -> None:
    """Nobody gets in under a name that is not there."""
    assert UserStore([user()], rounds=4).verify(email, "right") is None


def test_a_password_over_72_bytes_is_wrong(work: list[int]) -> None:
    """Bcrypt would cut it and find the first 72 bytes right; it is wrong, after the same work."""
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
    """Known or not, right or wrong, cheap hash or dear: the rounds of bcrypt add up to those of the dearest hash."""
    store = UserStore([user("cheap@example.org", rounds=4), user("dear@example.org", rounds=7)], rounds=12)
    store.verify(email, password)
    assert sum(work) == 2**7


def test_a_check_costs_the_set_rounds_without_users(work: list[int]) -> None:
    """A store of nobody does not answer faster than one with users."""
    assert UserStore([], rounds=5).verify("nobody@example.org", "x") is None
    assert work == [2**5]


def test_checks_wait_for_a_free_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more checks run at once than there are slots; the rest wait their turn and are all answered."""
    store = UserStore([user(rounds=8)], rounds=8, semaphore=FairSemaphore(2))
    check, running, most = bcrypt.checkpw, 0, 0
    lock, full = threading.Lock(), threading.Barrier(2)

    def observed(password: bytes, hashed: bytes) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(30)  # passes as soon as two are in here, so two do run at once
        right = check(password, hashed)  # long enough for all the others to come in, if anything lets them
        with lock:
            running -= 1
        return right

    monkeypatch.setattr(bcrypt, "checkpw", observed)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: store.verify("user@example.org", "right"), range(8)))
    assert most == 2
    assert all(found)


def test_a_hash_is_one_that_logs_in() -> None:
    """What `hash-password` prints is taken as a user's password_hash."""
    hashed = hash_password("pässword", 10)
    store = UserStore([User(email=OTHERS, password_hash=SecretStr(hashed), role="admin")], rounds=10)
    assert store.verify(OTHERS, "pässword") is not None


@pytest.mark.parametrize(("password", "reason"), [("", "empty"), ("é" * 37, "74 bytes"), ("a\0b", "NUL")])
def test_what_bcrypt_can_not_hash_is_refused(password: str, reason: str) -> None:
    """A password that is empty, would be cut, or has NUL is refused with the reason."""
    with pytest.raises(ValueError, match=reason):
        hash_password(password, 4)


def test_the_demo_users_are_those_of_the_contract() -> None:
    """`--dev` has a user and an administrator whose passwords are their roles."""
    store = UserStore(demo_users().values(), rounds=4)
    roles = {name: store.verify(f"{name}@example.org", name) for name in ("user", "admin")}
    assert [found and found.role for found in roles.values()] == ["user", "admin"]
