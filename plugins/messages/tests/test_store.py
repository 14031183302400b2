"""Operations of the message store that HTTP does not offer (SPEC Message)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plughost.testing import running_host, store_settings

if TYPE_CHECKING:
    from plughost.testing import RunningHost
    from plughost_messages.store import Messages


def test_the_most_recent_come_first(messages: Messages) -> None:
    """The latest N messages are returned, newest first."""
    created = [messages.create(str(number)) for number in range(5)]
    assert messages.latest(2) == [created[4], created[3]]
    assert messages.latest(100) == created[::-1]
    assert messages.latest(0) == []


def test_search_ignores_case(messages: Messages) -> None:
    """A keyword is found in any letter case and place, newest first, up to a limit."""
    big, small = messages.create("The WORLD is big"), messages.create("small world")
    messages.create("nothing")
    assert messages.search("World") == [small, big]
    assert messages.search("wORLD", limit=1) == [small]
    assert messages.search("moon") == []


def test_search_knows_all_scripts_on_sqlite(host: RunningHost, messages: Messages) -> None:
    """Letter case does not matter in any script; on PostgreSQL this depends on the database's locale."""
    if host.store("messages").dialect == "sqlite":
        found = messages.create("Größe ÄRGER Ωμέγα")
        assert [messages.search(keyword) for keyword in ("GRÖßE", "ärger", "ωΜΈΓΑ")] == [[found]] * 3


@pytest.mark.parametrize("keyword", ["100%", "a_b", "a\\b", "'", '"', "$x", "%s", "?", "😀"])
def test_search_takes_keywords_literally(messages: Messages, keyword: str) -> None:
    """Special characters of SQL have no special meaning."""
    found = messages.create(f"<{keyword}>")
    messages.create("100 aXb ab x")
    assert messages.search(keyword) == [found]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_ids_are_not_reused_after_a_restart(engine: str, tmp_path: Path) -> None:
    """After a restart, the messages exist, and new ids are beyond those of deleted ones."""
    with store_settings(engine) as settings:

        def run(content: str) -> tuple[int, list[str]]:
            with running_host(["messages"], settings=settings, data_dir=tmp_path) as host, host.client() as client:
                created: int = client.post("/messages", json={"content": content}).json()["id"]
                contents = [message["content"] for message in client.get("/messages").json()]
                if content == "deleted":
                    client.delete(f"/messages/{created}")
                return created, contents

        run("kept")
        deleted, _ = run("deleted")
        last, contents = run("last")
    assert last > deleted
    assert contents == ["kept", "last"]
