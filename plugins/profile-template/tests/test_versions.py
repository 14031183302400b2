"""Minor versions: 1.1 adds `updatedAt` to the fields of 1.0 (CONTRACT 2 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .conftest import PATH, error

if TYPE_CHECKING:
    import httpx


@pytest.mark.parametrize(("asked", "served"), [(None, "1.1"), ("1", "1.1"), ("1.1", "1.1"), ("1.0", "1.0")])
def test_the_header_chooses_the_version(client: httpx.Client, asked: str | None, served: str) -> None:
    """The default is the newest; the answer names its version, and caches see that it depends on the header."""
    headers = {"API-Version": asked} if asked else {}
    for answer in (
        client.get(PATH, headers=headers),
        client.put(PATH, json={}, headers=headers),
    ):
        assert answer.headers["API-Version"] == served
        assert "API-Version" in answer.headers["Vary"]
        assert ("updatedAt" in answer.json()["data"]) == (served == "1.1")


def test_errors_name_their_version(client: httpx.Client) -> None:
    """An error's answer also names the chosen version."""
    for asked, status, answer in (
        ("1.0", 404, client.get("/users/x", headers={"API-Version": "1.0"})),
        ("1.0", 422, client.put(PATH, json={"gender": 1}, headers={"API-Version": "1.0"})),
        ("1.1", 405, client.delete(PATH)),
    ):
        error(answer, status)
        assert answer.headers["API-Version"] == asked


def test_1_1_shows_when_the_profile_was_changed(client: httpx.Client) -> None:
    """A change sets `updatedAt`; a read and an empty change don't."""
    first = client.put(PATH, json={"weightKg": 71}).json()
    assert first["data"]["dateJoined"] <= first["data"]["updatedAt"] <= first["timestamp"]
    assert client.get(PATH).json()["data"]["updatedAt"] == first["data"]["updatedAt"]
    assert client.put(PATH, json={}).json()["data"]["updatedAt"] == first["data"]["updatedAt"]
    second = client.put(PATH, json={"weightKg": 72}, headers={"API-Version": "1.0"})
    assert "updatedAt" not in second.json()["data"]
    assert client.get(PATH).json()["data"]["updatedAt"] >= first["timestamp"]
