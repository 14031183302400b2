"""A read-only host on a read-only database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
from tests.integration.kit import host_process

from plughost.testing import fresh_postgresql


def test_a_read_only_host_is_ready_on_a_read_only_database(tmp_path: Path) -> None:
    """With every plugin, readiness is up, reads are answered, and writes are refused with the reason."""
    writes, reads = tmp_path / "writes", tmp_path / "reads"
    writes.mkdir()
    reads.mkdir()
    with fresh_postgresql() as url:
        with host_process(writes, {"stores": {"url": url}}) as host, host.client() as client:
            assert client.post("/messages", json={"content": "kept"}).status_code == 201
        with closing(psycopg2.connect(url)) as server, server.cursor() as cursor:
            server.autocommit = True
            cursor.execute(f"ALTER DATABASE {urlsplit(url).path[1:]} SET default_transaction_read_only = on")
        stores = {"url": url, "read_only": True}
        with host_process(reads, {"stores": stores}) as host, host.client() as client:
            ready = client.get("/q/health/ready")
            assert ready.status_code == 200, ready.text
            assert [each["content"] for each in client.get("/messages").json()] == ["kept"]
            refused = client.post("/messages", json={"content": "lost"})
            assert (refused.status_code, refused.json()["title"]) == (503, "Read Only")
            assert "Retry-After" not in refused.headers
            assert client.get("/q/health/ready").status_code == 200
            assert host.stop() == 0
