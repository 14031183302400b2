"""The metrics plugin, on a running host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest
from falcon.testing import create_environ
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from plughost import Counter, Gauge, Histogram, Operation, PluginContext, RequestKind, Route, RouteGroup, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host
from plughost_metrics.times import RequestTimes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import falcon
    import httpx

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Item:
    """Answers for every name except one."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer."""
        if name == "broken":
            raise ValueError("secret")
        resp.media = {"name": name}


class Shop:
    """A plugin to measure."""

    def __init__(self) -> None:
        """Start without a context."""
        self.context: PluginContext[Any] | None = None

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount a route with a field."""
        self.context = context
        route = Route("/{name}", Item(), {"GET": Operation(summary="Show an item")})
        return [RouteGroup(prefix="/items", routes=(route,))]


@contextmanager
def _host(plugin: object) -> Iterator[RunningHost]:
    with running_host(["metrics"], beside=[plugin_distribution("shop", plugin)]) as host:
        yield host


def _samples(client: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = parse_text(client.get("/q/metrics").text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def _requests(client: httpx.Client) -> dict[tuple[str, str, str, str], float]:
    return {
        (labels["plugin"], labels["method"], labels["route"], labels["status"]): value
        for (name, pairs), value in _samples(client).items()
        if name == "plughost_request_duration_seconds_count" and (labels := dict(pairs))
    }


def test_requests_are_counted_by_route() -> None:
    """They have plugin, method, template and status; without a matching route they count for the prefix."""
    with _host(Shop()) as host, host.client() as client:
        for path in ("/items/a", "/items/b", "/items/broken", "/items/a/b", "/nowhere"):
            client.get(path)
        client.request("BREW", "/items/a")
        counted = _requests(client)
    assert counted[("shop", "GET", "/items/{name}", "200")] == 2
    assert counted[("shop", "GET", "/items/{name}", "500")] == 1
    assert counted[("shop", "GET", "/items/*", "404")] == 1
    assert counted[("", "GET", "", "404")] == 1
    assert counted[("shop", "other", "/items/{name}", "405")] == 1


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
def test_any_text_of_a_plugin_is_shown(accept: str) -> None:
    """A lone surrogate in a label or a description, as in a file's name, hides no other metric."""
    plugin = Shop()
    with _host(plugin) as host, host.client(headers={"Accept": accept}) as client:
        assert plugin.context is not None
        plugin.context.metrics.counter("files", "Of \udcff.", ["name"]).add(name='\udcff"\n')
        answer = client.get("/q/metrics")
    assert answer.status_code == 200
    assert r"""shop_files_total{name="\\udcff\"\n",plugin="shop"} 1.0""" in answer.text


def test_ten_thousand_random_paths_add_no_series() -> None:
    """The number of series stays the same, however many paths are requested."""
    with _host(Shop()) as host, host.client() as client:
        client.get("/x"), client.get("/items/x/y"), client.get("/items/x"), client.get("/q/metrics")
        before = _samples(client).keys()
        site = host.host.serving.sites["main"]
        for number in range(10_000):
            _ask(site, f"/random-{number}/{number}" if number % 2 else f"/items/{number}/{number}")
        assert _samples(client).keys() == before


def _ask(site: Any, path: str) -> None:
    environ = create_environ(path)
    list(site(environ, lambda status, headers: None))


@pytest.mark.parametrize(
    ("accept", "content_type", "parse"),
    [
        ("text/plain", "text/plain; version=0.0.4", parse_text),
        ("*/*", "text/plain; version=0.0.4", parse_text),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0", parse_openmetrics),
        ("application/openmetrics-text;version=nonsense", "application/openmetrics-text", parse_openmetrics),
    ],
)
def test_the_format_follows_accept(accept: str, content_type: str, parse: Any) -> None:
    """Prometheus text and OpenMetrics are accepted by their parsers, have the right Content-Type, and vary."""
    with _host(Shop()) as host, host.client(headers={"Accept": accept}) as client:
        answer = client.get("/q/metrics")
        assert answer.headers["Content-Type"].startswith(content_type)
        assert "Accept" in answer.headers["Vary"].split(", ")
        assert "plughost_plugins" in {family.name for family in parse(answer.text)}


def test_plugins_events_are_counted() -> None:
    """Logins by outcome and store operations by kind come from the events that plugins emit."""
    shop = Shop()
    with _host(shop) as host, host.client() as client:
        assert shop.context is not None
        shop.context.emit("login", outcome="refused")
        shop.context.emit("store", store="s", kind="read", outcome="ok", seconds=0.2, waited=0.1)
        shop.context.emit("something else", of="no concern")
        samples = _samples(client)
    assert samples["plughost_logins_total", (("outcome", "refused"), ("plugin", "shop"))] == 1
    assert samples["plughost_store_operation_seconds_sum", (("kind", "read"), ("outcome", "ok"), ("store", "s"))] == 0.2
    assert samples["plughost_store_wait_seconds_sum", (("store", "s"),)] == 0.1


def test_every_store_operation_is_counted_once() -> None:
    """This holds for several threads, for many operations between two scrapes, and across a reload."""
    shop = Shop()
    with _host(shop) as host, host.client() as client, ThreadPoolExecutor(4) as threads:

        def emit(_: int) -> None:
            assert shop.context is not None
            shop.context.emit("store", store="s", kind="write", outcome="ok", seconds=0.001, waited=0.0)

        list(threads.map(emit, range(2500)))
        host.host.reload()
        list(threads.map(emit, range(100)))
        samples = _samples(client)
    labels = (("kind", "write"), ("outcome", "ok"), ("store", "s"))
    assert samples["plughost_store_operation_seconds_count", labels] == 2600
    assert not any(name.startswith("plughost_store_wait") for name, _ in samples if name.endswith("_count"))


def test_the_hosts_state_is_exposed() -> None:
    """This includes plugins by state, the certificate's days, the generation and reloads."""
    with _host(Shop()) as host, host.client() as client:
        host.host.reload()
        samples = _samples(client)
    assert samples["plughost_plugins", (("state", "active"),)] == 2
    assert samples["plughost_generation", ()] == 2
    assert samples["plughost_reloads_total", (("result", "swapped"),)] == 1
    assert samples["plughost_certificate_remaining_seconds", ()] > 300 * 86400
    assert samples["plughost_requests_in_flight", (("plugin", "metrics"),)] == 1


def test_reloads_are_exposed_before_the_first() -> None:
    """Prometheus sees an increase only from an earlier sample, so both results begin at 0."""
    with _host(Shop()) as host, host.client() as client:
        samples = _samples(client)
    assert samples["plughost_reloads_total", (("result", "swapped"),)] == 0
    assert samples["plughost_reloads_total", (("result", "failed"),)] == 0


def test_figures_survive_a_reload() -> None:
    """Earlier requests are still counted after a reload, and none twice."""
    with _host(Shop()) as host, host.client() as client:
        client.get("/items/a")
        host.host.reload()
        client.get("/items/a")
        assert _requests(client)[("shop", "GET", "/items/{name}", "200")] == 2


def test_two_hosts_in_one_process_count_separately() -> None:
    """Each host has its own metrics."""
    with _host(Shop()) as one, _host(Shop()) as other, one.client() as client, other.client() as other_client:
        client.get("/items/a")
        assert ("shop", "GET", "/items/{name}", "200") not in _requests(other_client)


class EmittingPlugin:
    """A plugin that emits a login and a store operation at each start."""

    @hookimpl
    def started(self, context: PluginContext[Any]) -> None:
        """Emit the events."""
        context.emit("login", outcome="ok")
        context.emit("store", store="s", kind="read", outcome="ok", seconds=0.1)


def test_figures_survive_a_new_instance_of_the_plugin() -> None:
    """A new instance, as after a change of its mount, continues to count, each event once."""
    installed = [*metadata.distributions(), plugin_distribution("shop", Shop())]
    with running_host(["metrics", "shop"], distributions=installed) as host, host.client() as client:
        client.get("/items/a")
        file = host.host.settings.file
        assert file is not None
        installed.append(plugin_distribution("tells", EmittingPlugin()))
        host.host.reload()
        file.write_text(file.read_text() + "\n[plugins.metrics]\nbody_limit = 1000\n[plugins.tells]\nbody_limit = 1\n")
        assert host.host.reload().changed == ("metrics", "tells")
        client.get("/items/a")
        samples = _samples(client)
        assert _requests(client)["shop", "GET", "/items/{name}", "200"] == 2
    assert samples["plughost_reloads_total", (("result", "swapped"),)] == 2
    assert samples["plughost_logins_total", (("outcome", "ok"), ("plugin", "tells"))] == 2
    labels = (("kind", "read"), ("outcome", "ok"), ("store", "s"))
    assert samples["plughost_store_operation_seconds_count", labels] == 2
    assert samples["plughost_requests_in_flight", (("plugin", "metrics"),)] == 1


def test_a_request_that_middleware_answered_is_counted() -> None:
    """CORS answers a preflight before anything else sees it."""
    installed = [*metadata.distributions(), plugin_distribution("shop", Shop())]
    settings = {"sites": {"main": {"cors": {"origins": ["https://app.example.org"]}}}}
    preflight = {"Origin": "https://app.example.org", "Access-Control-Request-Method": "GET"}
    with (
        running_host(["metrics", "shop"], distributions=installed, settings=settings) as host,
        host.client() as client,
    ):
        assert client.options("/items/a", headers=preflight).is_success
        assert sum(value for key, value in _requests(client).items() if key[1] == "OPTIONS") == 1


def test_a_bucket_includes_its_bound() -> None:
    """Buckets are cumulative; the last one contains all values, and the sum is right."""
    kind = RequestKind("shop", "/items", "GET", 200)
    shop = Shop()
    with _host(shop):
        assert shop.context is not None
        times = RequestTimes(shop.context)
        times.observe({kind: [0.3, 0.001, 0.0011]})
        times.observe({kind: [20.0]})
        samples = next(iter(times.collect())).samples
    buckets = {each.labels["le"]: each.value for each in samples if each.name.endswith("_bucket")}
    assert [buckets[bound] for bound in ("0.001", "0.0025", "0.25", "0.5", "10.0", "+Inf")] == [1, 2, 2, 3, 3, 4]
    (total,) = [each.value for each in samples if each.name.endswith("_sum")]
    assert total == pytest.approx(20.3021)


class CountingPlugin(Shop):
    """A plugin with its own metrics."""

    def __init__(self) -> None:
        """Start without metrics."""
        super().__init__()
        self.orders: Counter
        self.waiting: Gauge
        self.seconds: Histogram

    @hookimpl
    def started(self, context: PluginContext[Any]) -> None:
        """Create the metrics."""
        self.orders = context.metrics.counter("orders", "Orders.", ["country"])
        self.waiting = context.metrics.gauge("waiting", "Orders that wait.")
        self.seconds = context.metrics.histogram("seconds", "Seconds that one took.", bounds=[1, 2])


def test_a_plugins_own_metrics_are_shown_while_it_serves() -> None:
    """They have its name, survive a reload that reuses it, and disappear with it."""
    shop = CountingPlugin()
    beside = [plugin_distribution("big-shop", shop)]
    with running_host(["metrics"], beside=beside) as host, host.client() as client:
        shop.orders.add(country="NZ")
        shop.waiting.set(3)
        for value in (1, 1.5, 7):
            shop.seconds.observe(value)
        assert host.host.reload().ok
        shop.orders.add(2, country="NZ")
        shown = {(name, labels): value for (name, labels), value in _samples(client).items() if "big_shop_" in name}
        plugin = ("plugin", "big-shop")
        assert shown == {
            ("big_shop_orders_total", (("country", "NZ"), plugin)): 3,
            ("big_shop_waiting", (plugin,)): 3,
            ("big_shop_seconds_bucket", (("le", "1"), plugin)): 1,
            ("big_shop_seconds_bucket", (("le", "2"), plugin)): 2,
            ("big_shop_seconds_bucket", (("le", "+Inf"), plugin)): 3,
            ("big_shop_seconds_count", (plugin,)): 3,
            ("big_shop_seconds_sum", (plugin,)): 9.5,
        }
        beside.clear()
        assert host.host.reload(accept=["big-shop"]).swapped
        assert not [name for name, _ in _samples(client) if name.startswith("big_shop_")]
