"""A host under OpenTelemetry's agent, which replaces `falcon.App` before the host is imported."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.integration.kit import host_process

AGENT = str(Path(sys.executable).with_name("opentelemetry-instrument"))
EXPORT = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
ASKED = ("http.status_code", "plughost.plugin", "plughost.site")


def spans(text: str) -> list[dict[str, Any]]:
    """Return the spans that the agent's exporter has printed, each a JSON object over several lines."""
    return [json.loads(each) for each in re.findall(r"^\{$.*?^\}$", text, re.DOTALL | re.MULTILINE)]


def test_requests_are_traced_by_the_agent(tmp_path: Path) -> None:
    """`opentelemetry-instrument plughost serve` traces requests by their route, also after a reload.

    The plugin adds to the agent's spans which plugin answered, and the store operations.
    """
    with host_process(tmp_path, under=[AGENT, "--"], environment=EXPORT) as host:
        with host.client() as client:
            assert client.get("/api/v2/products/none").status_code == 404
            assert client.get("/q/health/live").status_code == 200  # its resource sets the status as an int
            assert host.ask("reload")["ok"]
            assert client.get("/messages").status_code == 200
        assert host.stop() == 0
        assert host.process.stdout is not None
        missing, live, store, found = spans(host.process.stdout.read())
    assert [each["name"] for each in (missing, live, store, found)] == [
        "GET /api/v2/products/{sku}",
        "GET /q/health/live",
        "read messages",
        "GET /messages",
    ]
    whom = [[each["attributes"].get(name) for name in ASKED] for each in (missing, found)]
    assert whom == [[404, "catalog-v2", "main"], [200, "messages", "main"]]
    assert store["parent_id"] == found["context"]["span_id"]
    host.no_tracebacks()
