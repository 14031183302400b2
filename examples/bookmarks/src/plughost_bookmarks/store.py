"""The store `bookmarks` and what can be done with it; the only module of the plugin that knows SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from plughost import Store
from plughost.stores import read_page

if TYPE_CHECKING:
    from plughost.http import Page
    from plughost.stores import OpenStore, Session

STORE: Final = Store(name="bookmarks", migrations=files(__package__) / "migrations", tables=("bookmarks",))

_SELECT: Final = "SELECT id, url, title, tags, created_at FROM bookmarks"
_MISSED: Final = 1000  # what a reader who comes back is sent at most


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A bookmark.

    Attributes:
        id: Given by the store, never twice.
        url: Where it leads; no two bookmarks lead to the same.
        title: What people read.
        tags: What it is about.
        created_at: When it was kept, in UTC.
    """

    id: int
    url: str
    title: str
    tags: tuple[str, ...]
    created_at: datetime


class Bookmarks:
    """All bookmarks."""

    def __init__(self, store: OpenStore[Session]) -> None:
        """Take the open store `bookmarks`."""
        self._store = store

    def create(self, url: str, title: str, tags: tuple[str, ...], now: datetime) -> Bookmark:
        """Keep a new bookmark.

        Raises:
            Duplicate: There is one with this URL.
        """
        now = now.astimezone(UTC).replace(microsecond=0)
        searched = f"{title} {url} {' '.join(tags)}".casefold()
        values = url, title, f" {' '.join(tags)} ", int(now.timestamp()), searched
        return Bookmark(self._store.single(_create, values), url, title, tags, now)

    def get(self, number: int) -> Bookmark | None:
        """Return a bookmark, or None where there is none with this id."""
        return next(iter(self._store.read(_records, "WHERE id = ?", number)), None)

    def search(self, words: str, tag: str, page: Page) -> list[Bookmark]:
        """Return a page of the bookmarks with every one of some words.

        Args:
            words: Parts of title, URL and tags, whatever their letter case. Empty for any.
            tag: A tag that they have. Empty for any.
            page: Which page, and in which order.
        """
        parts = [f"%{_literal(word)}%" for word in words.casefold().split()]
        select = f"{_SELECT} WHERE tags LIKE ? ESCAPE '!'" + " AND searched LIKE ? ESCAPE '!'" * len(parts)
        about = f"% {_literal(tag)} %" if tag else "%"
        found, _ = self._store.read(read_page, _bookmark, select, page, about, *parts)
        return found

    def after(self, number: int) -> list[Bookmark]:
        """Return the newest bookmarks beyond an id, oldest first."""
        return self._store.read(_records, "WHERE id > ? ORDER BY id DESC LIMIT ?", number, _MISSED)[::-1]

    def delete(self, number: int) -> bool:
        """Remove a bookmark; tell whether there was one."""
        return self._store.single(_delete, "id = ?", number) > 0

    def delete_older(self, moment: datetime) -> int:
        """Remove what was kept before a moment; return how many."""
        return self._store.single(_delete, "created_at < ?", int(moment.timestamp()))


def _create(session: Session, values: tuple[str | int, ...]) -> int:
    sql = "INSERT INTO bookmarks (url, title, tags, created_at, searched) VALUES (?, ?, ?, ?, ?)"
    return session.insert(sql, *values)


def _records(session: Session, rest: str, *values: int) -> list[Bookmark]:
    return session.records(_bookmark, f"{_SELECT} {rest}", *values)


def _bookmark(number: int, url: str, title: str, tags: str, created_at: int) -> Bookmark:
    return Bookmark(number, url, title, tuple(tags.split()), datetime.fromtimestamp(created_at, UTC))


def _delete(session: Session, rule: str, value: int) -> int:
    return session.change(f"DELETE FROM bookmarks WHERE {rule}", value)  # noqa: S608 - as above  # nosec B608


def _literal(text: str) -> str:
    """Return a pattern of LIKE that stands for a text and nothing else."""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return text
