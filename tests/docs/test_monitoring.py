"""The example dashboard and alert rules use only existing metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from plughost import Job, hookimpl
from plughost.testing import plugin_distribution, running_host

FOLDER = Path(__file__).parents[2] / "docs" / "operators" / "monitoring"

OF_PROMETHEUS = {"instance", "job"}
"""Target labels that Prometheus adds; it renames a metric's own label of the same name, such as to `exported_job`."""


class Tidying:
    """A plugin with a job."""

    @hookimpl
    def register_jobs(self) -> list[Job]:
        """Return a job that does nothing, once a day."""
        return [Job(name="tidy", run=lambda run: None, every=86400)]


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """The names and labels of the samples of a host that has a store, a job, a login and a reload behind it."""
    beside = [plugin_distribution("tidying", Tidying())]
    with running_host(["metrics", "messages", "library-auth"], beside=beside) as host, host.client() as client:
        client.get("/messages")
        with host.client("library", "https") as library:
            library.get("/mylibrary/setup/login", auth=("user@example.org", "wrong"))
        host.host.reload()
        families = list(text_string_to_metric_families(client.get("/q/metrics").text))
    return {sample.name: set(sample.labels) for each in families for sample in each.samples}


def _dashboard() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def _alerts() -> list[str]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("expression", [*_dashboard(), *_alerts()])
def test_an_expression_uses_existing_metrics(expression: str, samples: dict[str, set[str]]) -> None:
    """Every metric in an expression is exposed, with the labels in its selectors."""
    named = re.findall(r"\b((?:plughost|process)_\w+)(?:\{([^}]*)\})?", expression)
    assert named or expression.startswith("up{")
    for name, selectors in named:
        assert name in samples, name
        assert set(re.findall(r"(\w+)=", selectors)) <= samples[name] | OF_PROMETHEUS


def test_the_alert_for_stores_counts_a_lost_file() -> None:
    """The label `outcome` has an error's class, so the rule names only those that are no trouble of the store."""
    (no_trouble,) = re.findall(r'operation_seconds_count\{outcome!~"([^"]+)"', "".join(_alerts()))
    with running_host(["metrics", "messages"]) as host, host.client() as client:
        (host.host.settings.data_dir / "stores" / "messages.sqlite3").unlink()
        assert client.post("/messages", json={"content": "a"}).status_code == 503
        exposed = client.get("/q/metrics").text
    (outcome,) = set(re.findall(r'operation_seconds_count\{kind="write",outcome="(\w+)"', exposed))
    assert not re.fullmatch(no_trouble, outcome)


def test_no_label_has_a_name_that_prometheus_reserves(samples: dict[str, set[str]]) -> None:
    """So Prometheus renames no label of the host."""
    assert "plughost_job_running" in samples
    assert [name for name, labels in samples.items() if labels & OF_PROMETHEUS] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_accepts_metrics_and_rules() -> None:
    """`promtool` accepts the metrics' names and base units, and the rules."""
    with running_host(["metrics", "catalog-v1", "library-auth"]) as host, host.client() as client:
        client.get("/api/v1/products")
        exposed = client.get("/q/metrics").text
    for arguments, given in ((["metrics"], exposed), (["rules", str(FOLDER / "alerts.yml")], "")):
        checked = subprocess.run(
            ["promtool", "check", *arguments], input=given, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_names_an_action(samples: dict[str, set[str]]) -> None:
    """Each rule has a summary and an action for the person on call, and uses only labels of its metrics."""
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        assert set(rule["annotations"]) == {"summary", "action"}
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        known = set.union(OF_PROMETHEUS, *(samples.get(each, set()) for each in re.findall(r"\w+", rule["expr"])))
        assert named <= known
        assert rule["labels"]["severity"] in {"critical", "warning"}
