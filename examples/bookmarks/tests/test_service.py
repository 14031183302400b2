"""The service over real HTTP, on each database."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from plughost_bookmarks.store import Bookmarks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from plughost.testing import RunningHost


def create(client: httpx.Client, name: str, *tags: str, title: str = "A site") -> dict[str, Any]:
    """Create a bookmark and return it."""
    answer = client.post("/bookmarks", json={"url": f"https://{name}.example.org/", "title": title, "tags": tags})
    assert answer.status_code == 201
    bookmark: dict[str, Any] = answer.json()
    return bookmark


def found(client: httpx.Client, **query: str | int) -> list[int]:
    """Return the ids that a search finds."""
    return [bookmark["id"] for bookmark in client.get("/bookmarks", params=query).json()]


def test_a_bookmark_is_created_read_and_deleted(client: httpx.Client) -> None:
    """Its path returns what the create returned, until it is deleted."""
    created = create(client, "a", "news")
    path = f"/bookmarks/{created['id']}"
    assert created["createdAt"] == "2027-01-01T00:00:00Z"
    assert client.get(path).json() == created
    assert client.delete(path).status_code == 204
    assert [client.request(method, path).status_code for method in ("GET", "DELETE")] == [404, 404]


def test_a_url_is_stored_once(client: httpx.Client) -> None:
    """A second bookmark with the same URL is a conflict, and changes nothing."""
    create(client, "a")
    assert client.post("/bookmarks", json={"url": "https://a.example.org/", "title": "Again"}).status_code == 409
    assert len(found(client)) == 1


def test_all_invalid_fields_are_reported_together(client: httpx.Client) -> None:
    """An invalid body or query is 400, with a violation for each field."""
    answer = client.post("/bookmarks", json={"url": "ftp://a", "title": " ", "tags": ["Big", "ok"]})
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json()["violations"]] == ["url", "title", "tags[0]"]
    answer = client.get("/bookmarks", params={"size": "many", "sort": "url"})
    assert [each["field"] for each in answer.json()["violations"]] == ["size", "sort"]


def test_search_finds_every_word_and_nothing_else(client: httpx.Client) -> None:
    """Words match anywhere and in any case; `%` and `_` are ordinary characters."""
    first, second = create(client, "one", title="Größe 100%")["id"], create(client, "two", title="GRÖSSE")["id"]
    assert found(client, q="grösse") == [first, second]
    assert found(client, q="GRÖßE two") == [second]
    assert found(client, q="100%") == [first]
    assert found(client, q="_") == []


def test_only_whole_tags_match(client: httpx.Client) -> None:
    """A part of a tag finds nothing."""
    news = create(client, "a", "news", "daily")["id"]
    create(client, "b", "newspaper")
    assert found(client, tag="news") == [news]
    assert found(client, tag="daily", q="a.example") == [news]


def test_a_long_list_is_read_page_by_page(client: httpx.Client) -> None:
    """Links lead from page to page, and keep the search."""
    ids = [create(client, f"{number}", "news")["id"] for number in range(3)]
    first = client.get("/bookmarks?q=example&tag=news&sort=-id&size=2")
    second = client.get(first.links["next"]["url"])
    assert [each["id"] for each in [*first.json(), *second.json()]] == ids[::-1]
    assert "next" not in second.links
    assert "tag=news" in str(second.url)


def test_the_first_minor_version_has_no_tags(client: httpx.Client) -> None:
    """A client of 1.0 gets the fields of 1.0; the newest version is the default."""
    created = create(client, "a", "news")
    old = client.get(f"/bookmarks/{created['id']}", headers={"API-Version": "1.0"})
    assert (old.headers["API-Version"], old.json().get("tags"), created["tags"]) == ("1.0", None, ["news"])


def _events(stream: httpx.Response) -> Iterator[int]:
    lines = (line for line in stream.iter_lines() if line.startswith("id: "))
    return (int(line.removeprefix("id: ")) for line in lines)


def test_the_stream_sends_missed_and_new_bookmarks(client: httpx.Client) -> None:
    """A client that reconnects with its last id gets the bookmarks after it, then each new one."""
    known, missed = create(client, "a")["id"], create(client, "b")["id"]
    with client.stream("GET", "/bookmarks/events", headers={"Last-Event-ID": str(known)}) as stream:
        events = _events(stream)
        assert next(events) == missed
        new = create(client, "c")["id"]
        assert next(events) == new


def test_old_bookmarks_are_removed(host: RunningHost, client: httpx.Client) -> None:
    """The job removes bookmarks older than a week, and no others."""
    christmas = datetime(2026, 12, 24, tzinfo=UTC)
    Bookmarks(host.store("bookmarks")).create("https://old.example.org/", "Old", (), christmas)
    young = create(client, "young")["id"]
    host.advance(4 * 3600)
    while not host.host.view.jobs[0].runs:  # the job runs in another thread
        Event().wait(0.01)
    assert found(client) == [young]


@pytest.mark.parametrize("path", ["/bookmarks/0", "/bookmarks/x", f"/bookmarks/{2**63}"])
def test_an_invalid_id_is_not_found(client: httpx.Client, path: str) -> None:
    """It is 404, not a server error."""
    assert client.get(path).status_code == 404


def test_the_page_runs_only_its_own_script(client: httpx.Client) -> None:
    """It is HTML, and its policy contains the digest of its script."""
    answer = client.get("/bookmarks/page")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
