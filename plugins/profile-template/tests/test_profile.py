"""The profile is read, and partially changed (SPEC User profile, CONTRACT 7)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from plughost.testing import running_host

from .conftest import PATH, assert_now, error, profile_host

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from plughost.testing import RunningHost

FIELDS: dict[str, Any] = {
    "userId": str,
    "displayName": str,
    "email": str,
    "profileImageUrl": str,
    "dateJoined": int,
    "fitnessLevel": str,
    "heightCm": (int, float),
    "weightKg": (int, float),
    "dateOfBirth": int,
    "gender": str,
    "isPremium": bool,
    "settings": dict,
}
SETTINGS: dict[str, Any] = {
    "useMetricSystem": bool,
    "enableNotifications": bool,
    "darkModePreference": str,
    "restTimerDuration": int,
}
CHANGE = {"displayName": "Sam", "heightCm": 181.5, "weightKg": 70, "fitnessLevel": "ADVANCED", "gender": "OTHER"}


def profile(client: httpx.Client) -> dict[str, Any]:
    """Return the current profile."""
    data: dict[str, Any] = client.get(PATH, headers={"API-Version": "1.0"}).json()["data"]
    return data


def test_a_profile_has_every_field_of_its_type(client: httpx.Client) -> None:
    """The demo profile has a value for every field."""
    answer = client.get(PATH, headers={"API-Version": "1.0"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    envelope = answer.json()
    assert envelope.keys() == {"status", "data", "code", "timestamp"}
    assert (envelope["status"], envelope["code"]) == ("success", 200)
    assert_now(envelope["timestamp"], answer)
    data = envelope["data"]
    assert data.keys() == FIELDS.keys()
    assert all(isinstance(data[name], kind) for name, kind in FIELDS.items())
    assert data["settings"].keys() == SETTINGS.keys()
    assert all(isinstance(data["settings"][name], kind) for name, kind in SETTINGS.items())


def test_a_change_is_answered_and_stored(client: httpx.Client) -> None:
    """A PUT answers with the changed profile and a message."""
    before = profile(client)
    answer = client.put(PATH, json=CHANGE, headers={"API-Version": "1.0"})
    envelope = answer.json()
    assert (answer.status_code, envelope["status"], envelope["code"]) == (200, "success", 200)
    assert envelope["message"]
    assert envelope["data"] == before | CHANGE
    assert profile(client) == before | CHANGE


@pytest.mark.parametrize("name", CHANGE)
def test_absent_fields_stay_unchanged(client: httpx.Client, name: str) -> None:
    """A PUT of one field changes only that field; an empty one changes nothing, and succeeds."""
    client.put(PATH, json=CHANGE)
    other = {"displayName": "Kim", "heightCm": 160, "weightKg": 55.25, "fitnessLevel": "BEGINNER", "gender": "FEMALE"}
    client.put(PATH, json={name: other[name]})
    assert {key: profile(client)[key] for key in CHANGE} == {**CHANGE, name: other[name]}
    before = client.get(PATH).json()["data"]
    nothing = client.put(PATH, json={})
    assert (nothing.status_code, nothing.json()["data"]) == (200, before)


def test_read_only_members_are_ignored(client: httpx.Client) -> None:
    """A PUT ignores other members, whether or not a profile has them."""
    before = profile(client)
    answer = client.put(PATH, json={"userId": "x", "isPremium": True, "email": "x@y", "settings": {}, "new": 1})
    assert answer.status_code == 200
    assert profile(client) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("displayName", "x" * 100),
        ("displayName", " \U0001d4b3 \u202e<b>"),
        ("heightCm", 300),
        ("heightCm", 0.001),
        ("weightKg", 700),
        ("weightKg", 72.34567),
        *(("fitnessLevel", value) for value in ("BEGINNER", "INTERMEDIATE", "ADVANCED")),
        *(("gender", value) for value in ("MALE", "FEMALE", "OTHER", "UNDISCLOSED")),
    ],
)
def test_valid_values_are_stored_as_sent(client: httpx.Client, name: str, value: object) -> None:
    """The bounds themselves are allowed, and values come back unchanged."""
    assert client.put(PATH, json={name: value}).json()["data"][name] == value
    assert profile(client)[name] == value


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("displayName", "", "must not be blank"),
        ("displayName", " \u2003", "must not be blank"),
        ("displayName", None, "must not be blank"),
        ("displayName", 5, "must be a string"),
        ("displayName", "x" * 101, "size must be between 0 and 100"),
        ("displayName", "a\0b", "must not contain NUL"),
        ("heightCm", None, "must not be null"),
        ("heightCm", 0, "must be greater than 0"),
        ("heightCm", -1, "must be greater than 0"),
        ("heightCm", 300.0001, "must be less than or equal to 300"),
        ("heightCm", "180", "must be a number"),
        ("heightCm", True, "must be a number"),
        ("weightKg", None, "must not be null"),
        ("weightKg", 0.0, "must be greater than 0"),
        ("weightKg", 701, "must be less than or equal to 700"),
        ("weightKg", [70], "must be a number"),
        ("fitnessLevel", None, "must not be null"),
        ("fitnessLevel", "advanced", "must be one of BEGINNER, INTERMEDIATE, ADVANCED"),
        ("gender", None, "must not be null"),
        ("gender", "", "must be one of MALE, FEMALE, OTHER, UNDISCLOSED"),
        ("gender", {}, "must be a string"),
    ],
)
def test_a_wrong_value_is_422_and_changes_nothing(client: httpx.Client, name: str, value: object, message: str) -> None:
    """The error has the contract's text for the field, and a valid field beside it isn't changed either."""
    before = profile(client)
    right = {"gender": "OTHER"} if name != "gender" else {"weightKg": 1}
    envelope = error(client.put(PATH, json={**right, name: value}), 422)
    assert envelope["errors"] == [{"field": name, "message": message}]
    assert profile(client) == before


def test_a_tiny_measure_stays_greater_than_zero(client: httpx.Client) -> None:
    """A number too small for a double is stored as the smallest one greater than 0, as the rule says."""
    answer = client.put("/users/profile", content=b'{"heightCm": 1e-324}')
    assert answer.json()["data"]["heightCm"] > 0


def test_all_invalid_fields_are_reported_at_once(client: httpx.Client) -> None:
    """Nobody has to correct a form field by field."""
    wrong = {"displayName": "", "heightCm": 0, "weightKg": "x", "fitnessLevel": None, "gender": "X"}
    envelope = error(client.put(PATH, json=wrong), 422)
    assert [each["field"] for each in envelope["errors"]] == list(wrong)


def test_concurrent_changes_lose_no_field(host: RunningHost) -> None:
    """If PUTs of different fields overlap, the last value of each is stored."""
    changes: dict[str, list[Any]] = {"displayName": [f"name {i}" for i in range(25)], "heightCm": list(range(100, 125))}
    changes |= {"weightKg": [60 + i / 4 for i in range(25)]}
    together = threading.Barrier(len(changes))

    def put(name: str) -> set[int]:
        together.wait()
        with host.client() as client:
            return {client.put(PATH, json={name: value}).status_code for value in changes[name]}

    with ThreadPoolExecutor(len(changes)) as pool:
        assert list(pool.map(put, changes)) == [{200}] * len(changes)
    with host.client() as client:
        assert {name: profile(client)[name] for name in changes} == {
            name: values[-1] for name, values in changes.items()
        }


def test_a_profile_survives_a_restart(tmp_path: Path) -> None:
    """The changes are stored."""
    plugins = ["profile-template"]
    with running_host(plugins, data_dir=tmp_path, strict=True) as host, host.client() as client:
        before = client.put(PATH, json=CHANGE).json()["data"]
    with running_host(plugins, data_dir=tmp_path, strict=True) as host, host.client() as client:
        assert client.get(PATH).json()["data"] == before


def test_many_first_requests_create_one_profile() -> None:
    """Simultaneous first clients see the same profile."""
    together = threading.Barrier(8)
    with profile_host() as host, host.client() as client:

        def get(_: int) -> str:
            together.wait()
            answer = client.get(PATH)
            return answer.text.partition('"code"')[0]

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(get, range(8)))) == 1
