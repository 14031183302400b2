"""Reloads that replace a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.host.plugins import Plugin, group_of

from plughost import Store
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from pathlib import Path

    import falcon

    from plughost.stores import OpenStore


class Reads:
    """Reads from a store."""

    def __init__(self, store: OpenStore[Any]) -> None:
        """Keep the store."""
        self.store = store

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Read from it."""
        resp.media = self.store.read(lambda session: session.row("SELECT 1 AS one"))


def test_a_plugin_that_shares_a_store_gets_the_reopened_one(tmp_path: Path) -> None:
    """A store with changed settings replaces the earlier one, also for a plugin that requires its owner."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_begin.sql").write_text("SELECT 1;")
    owner = Plugin(register_stores=lambda context: [Store(name="kept", migrations=tmp_path, tables=())])
    reader = Plugin(register_routes=lambda context: [group_of(Reads(context.stores["kept"]))])
    installed = [
        plugin_distribution("owner", owner),
        plugin_distribution("reader", reader, requires=["plughost-owner"]),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/say").status_code == 200
        file = host.host.settings.file
        assert file is not None
        file.write_text(f"{file.read_text()}\n[stores]\npatience = 7\n")
        assert host.host.reload().changed == ("owner", "reader")
        assert client.get("/say").status_code == 200
