"""Hooks called again: a plugin is told what has changed around it by a new instance, which gets every hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.host.plugins import Plugin, Speaker, group_of, reason

from plughost import RouteGroup, Store, hookimpl
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from pathlib import Path

    import falcon


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """Return the folder of a store with one table."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_notes.sql").write_text("CREATE TABLE notes (id INTEGER PRIMARY KEY, content TEXT);")
    return tmp_path


class Count:
    """Answers with the number of notes."""

    def __init__(self, store: Any) -> None:
        """Count the rows of a store."""
        self.store = store

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.media = self.store.read(lambda session: session.rows("SELECT count(*) FROM notes"))[0][0]


class Notes:
    """A plugin whose hooks share what they make, and the context, in `self`."""

    migrations: Path
    contexts: list[Any]

    @hookimpl
    def register_stores(self, context: Any) -> list[Store]:
        """Declare the store, and remember it."""
        self.context = context
        self.declared = Store(name="notes", migrations=self.migrations, tables=("notes",))
        return [self.declared]

    @hookimpl
    def register_routes(self, context: Any) -> list[RouteGroup]:
        """Use it."""
        assert context is self.context
        return [group_of(Count(context.store(self.declared)), "/notes")]

    @hookimpl
    def started(self, context: Any) -> None:
        """Compare the contexts."""
        assert context is self.context


def guard(**hooks: Any) -> Plugin:
    """Return a plugin that offers an authenticator."""
    return Plugin(register_authenticator=lambda context: lambda req: None, **hooks)


@pytest.fixture
def notes(migrations: Path) -> Any:
    """Return the distribution of the notes."""
    return plugin_distribution("notes", type("Notes", (Notes,), {"migrations": migrations}))


def test_another_authenticator_gives_a_plugin_a_new_instance_with_all_its_hooks(notes: Any) -> None:
    """What `register_stores` put into `self` is there when `register_routes` is called again; all get one context."""
    installed = [plugin_distribution("guard", guard(), version="1"), notes]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/notes").json() == 0
        installed[0] = plugin_distribution("guard", guard(), version="2")
        report = host.host.reload()
        assert (report.swapped, report.failed) == (True, ())
        assert client.get("/notes").json() == 0


def test_a_failed_authenticator_fails_no_other_plugin(notes: Any) -> None:
    """The others get new instances, whose hooks are called again without it."""
    taking = guard(register_routes=lambda context: [group_of(Count(None))])
    installed = [plugin_distribution("a", Speaker("first")), plugin_distribution("guard", taking), notes]
    with running_host(distributions=installed) as host, host.client() as client:
        assert "conflict" in reason(host, "guard")
        assert client.get("/notes").json() == 0
