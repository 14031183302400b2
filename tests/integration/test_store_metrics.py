"""Metrics of other plugins' stores."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from plughost.testing import running_host


def test_the_connections_of_each_store_are_shown() -> None:
    """By plugin and store, these are the used, open and allowed connections, and the waits for them."""
    with running_host(["metrics", "messages"]) as host, host.client() as client:
        assert client.get("/messages").status_code == 200
        families = text_string_to_metric_families(client.get("/q/metrics").text)
        samples = {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.labels == {"plugin": "messages", "store": "messages"}
        }
    assert samples["plughost_store_connections_at_most"] == 10
    assert samples["plughost_store_connections_in_use"] == 0
    assert samples["plughost_store_connections_open"] >= 1
    assert {samples[f"plughost_store_{kind}_waits"] for kind in ("connection", "lock")} == {0}
