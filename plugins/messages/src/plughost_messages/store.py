"""The store `messages` and what can be done with it; the only module of the plugin that knows SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import msgspec

from plughost import Store
from plughost.http import MAX_ID

if TYPE_CHECKING:
    from plughost.stores import OpenStore, Session

MAX_LENGTH: Final = 500
"""Most Unicode code points of a message's content (SPEC Message)."""

_BATCH: Final = 500


class Message(msgspec.Struct, frozen=True, rename="camel"):
    """A message, as it is kept and as it is sent.

    Attributes:
        id: Given by the store, never twice.
        content: The text, which may be empty.
        created_at: When it was created, in the server's local time.
    """

    id: int
    content: str
    created_at: datetime


STORE: Final = Store(name="messages", migrations=files(__package__) / "migrations", tables=("messages",))


class Messages:
    """All messages. Every change is one transaction, on the disk before its method returns."""

    def __init__(self, store: OpenStore[Session]) -> None:
        """Take the open store `messages`."""
        self._store = store

    def batches(self) -> Iterator[Sequence[Message]]:
        """Yield all messages by id, in batches, so that memory stays bounded."""
        return self._store.batches(_after, key=lambda message: message.id, size=_BATCH)

    def get(self, message_id: int) -> Message | None:
        """Return a message, or None where there is none with this id, a number in 1 .. 2^63-1."""
        return next(iter(self._store.read(_select, "WHERE id = ?", message_id)), None)

    def create(self, content: str) -> Message:
        """Keep a new message, created now.

        Args:
            content: At most `MAX_LENGTH` code points, without NUL.
        """
        return self._store.single(_create, content, datetime.now())

    def delete(self, message_id: int) -> bool:
        """Remove a message, with an id in 1 .. 2^63-1; tell whether there was one."""
        return self._store.single(_delete, message_id)

    def latest(self, number: int) -> list[Message]:
        """Return the most recent messages, newest first (SPEC Message).

        Args:
            number: How many at most.
        """
        return self._store.read(_select, "ORDER BY id DESC LIMIT ?", number)

    def search(self, keyword: str, limit: int = 100) -> list[Message]:
        """Return the messages that contain a keyword, whatever its letter case, newest first (SPEC Message).

        Args:
            keyword: Taken literally.
            limit: How many at most.
        """
        if self._store.dialect == "postgresql":  # letter case as the database's locale knows it
            contains = "WHERE strpos(lower(content), lower(?)) > 0 ORDER BY id DESC LIMIT ?"
            return self._store.read(_select, contains, keyword, limit)
        # SQLite knows letter case in ASCII alone, Python in every script.
        wanted = keyword.lower()
        batches = self._store.batches(_before, key=lambda message: message.id, size=_BATCH)
        every = chain.from_iterable(batches)
        return list(islice((message for message in every if wanted in message.content.lower()), limit))


def _select(session: Session, rest: str, *values: str | int) -> list[Message]:
    """Select messages; `rest` is what follows the FROM clause, with a `?` for each of the values."""
    rows = session.rows(f"SELECT id, content, created_at FROM messages {rest}", *values)  # noqa: S608 - all ours  # nosec B608
    return [Message(key, content, _moment(created_at)) for key, content, created_at in rows]


def _moment(value: datetime | str) -> datetime:
    """Return a time as the database has it: SQLite has it as text."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _after(session: Session, last: int | None, limit: int) -> list[Message]:
    return _select(session, "WHERE id > ? ORDER BY id LIMIT ?", last or 0, limit)


def _before(session: Session, last: int | None, limit: int) -> list[Message]:
    return _select(session, "WHERE id < ? ORDER BY id DESC LIMIT ?", last or MAX_ID, limit)


def _create(session: Session, content: str, created_at: datetime) -> Message:
    sql = "INSERT INTO messages (content, created_at) VALUES (?, ?)"
    return Message(session.insert(sql, content, created_at), content, created_at)


def _delete(session: Session, message_id: int) -> bool:
    return session.change("DELETE FROM messages WHERE id = ?", message_id) > 0
