"""The store `messages` and what can be done with it; the only module of the plugin that knows Pony and SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pony import orm

from plughost.declarations import Store

if TYPE_CHECKING:
    from plughost.stores import OpenStore

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


def entities(db: Any) -> Any:
    """Define the entity on Pony's database."""

    class MessageEntity(db.Entity):  # type: ignore[misc] # Pony has no types
        _table_ = "messages"
        id = orm.PrimaryKey(int, size=64, auto=True)
        content = orm.Optional(str, MAX_LENGTH, nullable=False, autostrip=False)
        created_at = orm.Required(datetime, precision=6)

    return db


STORE: Final = Store(
    name="messages", entities=entities, migrations=files(__package__) / "migrations", tables=("messages",)
)


class Messages:
    """All messages. Every change is one transaction, on the disk before its method returns."""

    def __init__(self, store: OpenStore[Any]) -> None:
        """Take the open store `messages`."""
        self._store = store
        # Letter case as Python knows it, or as the database's locale does.
        self._contains = (
            "instr(py_lower(content), py_lower($keyword)) > 0"
            if store.engine_name == "sqlite"
            else "strpos(lower(content), lower($keyword)) > 0"
        )

    def batches(self) -> Iterator[Sequence[Message]]:
        """Yield all messages by id, in batches, so that memory stays bounded."""
        return self._store.batches(_after, key=lambda message: message.id, size=_BATCH)

    def get(self, message_id: int) -> Message | None:
        """Return a message, or None where there is none with this id, a number in 1 .. 2^63-1."""
        return next(iter(self._store.read(_select, "WHERE id = $id", id=message_id)), None)

    def create(self, content: str) -> Message:
        """Keep a new message, created now.

        Args:
            content: At most `MAX_LENGTH` code points, without NUL.
        """
        return self._store.run(_create, content, datetime.now())

    def delete(self, message_id: int) -> bool:
        """Remove a message, with an id in 1 .. 2^63-1; tell whether there was one."""
        return self._store.run(_delete, message_id)

    def latest(self, number: int) -> list[Message]:
        """Return the most recent messages, newest first (SPEC Message).

        Args:
            number: How many at most.
        """
        return self._store.read(_select, "ORDER BY id DESC LIMIT $number", number=number)

    def search(self, keyword: str, limit: int = 100) -> list[Message]:
        """Return the messages that contain a keyword, whatever its letter case, newest first (SPEC Message).

        Args:
            keyword: Taken literally.
            limit: How many at most.
        """
        rest = f"WHERE {self._contains} ORDER BY id DESC LIMIT $limit"
        return self._store.read(_select, rest, keyword=keyword, limit=limit)


def _select(db: Any, /, rest: str, **values: Any) -> list[Message]:
    """Select messages; several times as fast as through entities.

    Args:
        db: Pony's database.
        rest: What follows the FROM clause, with a `$name` for each of the values.
        **values: The values.
    """
    rows = db.select(f"SELECT id, content, created_at FROM messages {rest}", {}, values)  # noqa: S608 - all ours
    return [Message(key, content, _moment(created_at)) for key, content, created_at in rows]


def _moment(value: datetime | str) -> datetime:
    """Return a time as the engine has it: SQLite has it as text."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _after(db: Any, last: int | None, limit: int) -> list[Message]:
    return _select(db, "WHERE id > $last ORDER BY id LIMIT $limit", last=last or 0, limit=limit)


def _create(db: Any, content: str, created_at: datetime) -> Message:
    message = db.MessageEntity(content=content, created_at=created_at)
    db.flush()
    return Message(message.id, content, created_at)


def _delete(db: Any, message_id: int) -> bool:
    return bool(db.execute("DELETE FROM messages WHERE id = $id", {}, {"id": message_id}).rowcount)
