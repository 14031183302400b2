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
    """Create a bookmark, and return it."""
    answer = client.post("/bookmarks", json={"url": f"https://{name}.example.org/", "title": title, "tags": tags})
    assert answer.status_code == 201
    bookmark: dict[str, Any] = answer.json()
    return bookmark


def found(client: httpx.Client, **asked: str | int) -> list[int]:
    """Return the ids of what a search finds."""
    return [bookmark["id"] for bookmark in client.get("/bookmarks", params=asked).json()]


def test_a_bookmark_is_created_read_and_deleted(client: httpx.Client) -> None:
    """What the create answers is what its path answers, until it is deleted."""
    created = create(client, "a", "news")
    path = f"/bookmarks/{created['id']}"
    assert created["createdAt"] == "2027-01-01T00:00:00Z"
    assert client.get(path).json() == created
    assert client.delete(path).status_code == 204
    assert [client.request(method, path).status_code for method in ("GET", "DELETE")] == [404, 404]


def test_a_url_is_kept_once(client: httpx.Client) -> None:
    """A second bookmark of a URL is a conflict, and nothing is changed."""
    create(client, "a")
    assert client.post("/bookmarks", json={"url": "https://a.example.org/", "title": "Again"}).status_code == 409
    assert len(found(client)) == 1


def test_all_that_is_wrong_is_refused_at_once(client: httpx.Client) -> None:
    """A draft that breaks rules is 400, with a violation for each field; so is a query."""
    answer = client.post("/bookmarks", json={"url": "ftp://a", "title": " ", "tags": ["Big", "ok"]})
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json()["violations"]] == ["url", "title", "tags[0]"]
    answer = client.get("/bookmarks", params={"size": "many", "sort": "url"})
    assert [each["field"] for each in answer.json()["violations"]] == ["size", "sort"]


def test_search_finds_every_word_and_nothing_else(client: httpx.Client) -> None:
    """Words stand anywhere, in any case and script, and mean themselves."""
    first, second = create(client, "one", title="Größe 100%")["id"], create(client, "two", title="GRÖSSE")["id"]
    assert found(client, q="grösse") == [first, second]
    assert found(client, q="GRÖßE two") == [second]
    assert found(client, q="100%") == [first]
    assert found(client, q="_") == []


def test_tags_are_found_whole(client: httpx.Client) -> None:
    """A part of a tag is none."""
    news = create(client, "a", "news", "daily")["id"]
    create(client, "b", "newspaper")
    assert found(client, tag="news") == [news]
    assert found(client, tag="daily", q="a.example") == [news]


def test_a_long_list_is_read_page_by_page(client: httpx.Client) -> None:
    """Links lead from page to page, and keep what is searched for."""
    ids = [create(client, f"{number}", "news")["id"] for number in range(3)]
    first = client.get("/bookmarks?q=example&tag=news&sort=-id&size=2")
    second = client.get(first.links["next"]["url"])
    assert [each["id"] for each in [*first.json(), *second.json()]] == ids[::-1]
    assert "next" not in second.links
    assert "tag=news" in str(second.url)


def test_the_first_minor_version_has_no_tags(client: httpx.Client) -> None:
    """Who asks for 1.0 is shown what there was then; the newest is the default."""
    created = create(client, "a", "news")
    old = client.get(f"/bookmarks/{created['id']}", headers={"API-Version": "1.0"})
    assert (old.headers["API-Version"], old.json().get("tags"), created["tags"]) == ("1.0", None, ["news"])


def _events(stream: httpx.Response) -> Iterator[int]:
    lines = (line for line in stream.iter_lines() if line.startswith("id: "))
    return (int(line.removeprefix("id: ")) for line in lines)


def test_the_stream_tells_what_was_missed_and_what_comes(client: httpx.Client) -> None:
    """Who comes back with the last id that they know gets those after it, and then each new one."""
    known, missed = create(client, "a")["id"], create(client, "b")["id"]
    with client.stream("GET", "/bookmarks/events", headers={"Last-Event-ID": str(known)}) as stream:
        events = _events(stream)
        assert next(events) == missed
        new = create(client, "c")["id"]
        assert next(events) == new


def test_old_bookmarks_are_swept_away(host: RunningHost, client: httpx.Client) -> None:
    """The job removes what is older than a week, and nothing else."""
    christmas = datetime(2026, 12, 24, tzinfo=UTC)
    Bookmarks(host.store("bookmarks")).create("https://old.example.org/", "Old", (), christmas)
    young = create(client, "young")["id"]
    host.advance(4 * 3600)
    while not host.host.view.jobs[0].runs:  # it runs beside the test
        Event().wait(0.01)
    assert found(client) == [young]


@pytest.mark.parametrize("path", ["/bookmarks/0", "/bookmarks/x", f"/bookmarks/{2**63}"])
def test_what_is_no_id_names_nothing(client: httpx.Client, path: str) -> None:
    """It is 404, and no server error."""
    assert client.get(path).status_code == 404


def test_the_page_runs_its_own_script_alone(client: httpx.Client) -> None:
    """It is HTML, and its policy names the digest of its script."""
    answer = client.get("/bookmarks/page")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
