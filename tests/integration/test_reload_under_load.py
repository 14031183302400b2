"""Plugins come and go under a steady load, and not a request is lost (DESIGN, Reload without a lost request).

`PLUGHOST_TEST_CYCLES` sets how often messages is installed, switched off and on, upgraded and uninstalled; 10 by
default. The installing is done as pip leaves it, by files; that of the operators' commands has tests of its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.kit import HostProcess, Usage, host_process, write_settings
from tests.integration.load import Load
from tests.integration.packages import install, uninstall
from tests.operations.environments import Sandbox, Supplies
from tests.operations.wheels import build_wheel, checkout_wheel
from tests.waiting import wait_until

if TYPE_CHECKING:
    import httpx

LOG = logging.getLogger(__name__)
CYCLES = int(os.environ.get("PLUGHOST_TEST_CYCLES", "10"))
WARM_UP = 10  # by then all of granian's receivers exist, and the allocator has most of its memory
THREADS = 8  # requests.threads by default
GRANIAN = 15  # threads of its one listener: twelve receive, and three do everything else
PLUGINS = 3  # catalog-v2, gauge and messages may each start one more
SEEDS = {f"seed-{number}": {"sku": f"seed-{number}", "name": "Tea", "price": 1.5, "stock": 3} for number in range(100)}

GAUGE = """
import gc, os, sys, threading
from collections import Counter

from plughost import Operation, Route, RouteGroup, hookimpl


class Gauge:
    def on_get(self, req, resp):
        threads = [each for each in threading.enumerate() if not isinstance(each, threading._DummyThread)]
        answering = sum(each.name == "plughost-requests" for each in threads)
        gc.unfreeze()  # what a reload leaves is looked at, too
        for _ in range(3):
            gc.collect()
        blocks = sys.getallocatedblocks()
        found = gc.get_objects()
        kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in found)
        resp.media = {
            "objects": len(found),
            "blocks": blocks,
            "kinds": dict(kinds),
            "modules": len(sys.modules),
            "answering": answering,
            "others": len(threads) - answering,
            "native": len(os.listdir("/proc/self/task")) - len(threads),
        }


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/gauge", routes=(Route("", Gauge(), {"GET": Operation(summary="Measure")}),))]
"""


@dataclass(frozen=True)
class Held:
    """What a process holds while nobody asks it anything, and messages is not installed.

    Attributes:
        usage: What the system sees of it.
        objects: What the garbage collector knows.
        blocks: What Python allocated, strings and code included.
        kinds: The same by type.
        modules: How many are imported.
        answering: Threads that answer requests: they come when slow requests need them, up to the setting, and stay.
        others: All other threads of Python's.
        native: Those of granian: its receivers come when they are needed, up to twelve for a listener.
    """

    usage: Usage
    objects: int
    blocks: int
    kinds: dict[str, int]
    modules: int
    answering: int
    others: int
    native: int


@dataclass(frozen=True)
class Stage:
    """A host whose plugins a test installs and removes.

    Attributes:
        folder: Where its settings are.
        site: Where distributions are installed.
        wheels: Version to wheel of messages.
        host: The host.
    """

    folder: Path
    site: Path
    wheels: dict[str, Path]
    host: HostProcess

    def reload(self, **expected: list[str]) -> None:
        """Reload, and check that exactly this has changed."""
        report = self.host.ask("reload")
        changes = {key: report[key] for key in ("added", "changed", "disabled", "removed") if report[key]}
        assert (report["ok"], changes) == (True, expected), report

    def cycle(self) -> None:
        """Install, disable, enable, upgrade and uninstall messages."""
        install(self.site, self.wheels["1.0"])
        self.reload(added=["messages"])
        self.limit(500)
        write_settings(self.folder, {"disabled": ["messages"]})
        self.reload(disabled=["messages"])
        write_settings(self.folder, {})
        self.reload(added=["messages"])
        self.limit(500)
        install(self.site, self.wheels["2.0"])
        self.reload(changed=["messages"])
        self.limit(400)
        uninstall(self.site, "plughost-messages")
        self.reload(removed=["messages"])

    def limit(self, length: int) -> None:
        """Check that the right version of messages answers."""
        with self.host.client() as client:
            for characters, status in ((length, 201), (length + 1, 400)):
                assert client.post("/messages", json={"content": "x" * characters}).status_code == status

    def held(self) -> Held:
        """Measure after the clients' connections are closed."""
        seen: list[Usage] = []

        def settled() -> bool:
            seen.append(self.host.usage())
            return len(seen) > 10 and len({(each.threads, each.files) for each in seen[-10:]}) == 1

        wait_until(settled)
        with self.host.client() as client:
            gauge = client.get("/gauge").json()
        return Held(usage=seen[-1], **gauge)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A host in its own environment, with catalog-v2 and its products, and without messages."""
    sandbox = Sandbox(tmp_path / "sandbox", Supplies(tmp_path / "supplies"))
    wheels = {
        "1.0": checkout_wheel(tmp_path / "wheels", "messages", version="1.0"),
        "2.0": checkout_wheel(
            tmp_path / "wheels", "messages", version="2.0", store=("MAX_LENGTH: Final = 500", "MAX_LENGTH: Final = 400")
        ),
    }
    for plugin in ("catalog-core", "catalog-v2"):
        install(sandbox.site, checkout_wheel(tmp_path / "wheels", plugin))
    gauge = {"plughost_gauge/__init__.py": GAUGE}
    install(sandbox.site, build_wheel(tmp_path, "plughost-gauge", "1.0", gauge, plugins={"gauge": "plughost_gauge"}))
    environment = {**sandbox.environment, "MALLOC_ARENA_MAX": "2"}  # as in the unit in docs/operators/serving.md
    with host_process(sandbox.folder, python=sandbox.python, environment=environment) as host:
        with host.client() as client:
            for product in SEEDS.values():
                assert client.post("/api/v2/products", json=product).status_code == 201
        yield Stage(sandbox.folder, sandbox.site, wheels, host)
        assert host.stop() == 0


def test_messages_is_installed_and_removed_under_load(stage: Stage) -> None:
    """No request to catalog-v2 fails; messages answers or is a clean 404; and no cycle leaves anything behind."""
    numbers = count()

    def products(client: httpx.Client) -> str:
        number = next(numbers)
        seed = f"seed-{number % len(SEEDS)}"
        answer = client.get(f"/api/v2/products/{seed}")
        assert (answer.status_code, answer.json()) == (200, {**SEEDS[seed], "inStock": True}), answer.text
        new = {**SEEDS[seed], "sku": f"new-{number}"}
        assert client.post("/api/v2/products", json=new).status_code == 201
        assert client.delete(f"/api/v2/products/new-{number}").status_code == 204
        return "products"

    def messages(client: httpx.Client) -> str:
        listed = client.get("/messages")
        created = client.post("/messages", json={"content": "hello"})
        deleted = client.delete(f"/messages/{created.json().get('id', 1)}")
        return " ".join((check_answer(listed, 200), check_answer(created, 201), check_answer(deleted, 204)))

    def cycles(number: int) -> Held:
        with Load(stage.host) as load:
            load.add("products", products)
            load.add("messages", messages)
            for _ in range(number):
                stage.cycle()
        assert load.failures == []
        assert load.tally["products"] > 10 * number
        for answered in ("itself itself itself", "gone gone gone"):
            assert load.tally[answered] > number, load.tally
        return stage.held()

    before = cycles(WARM_UP)
    after = cycles(CYCLES)
    more = after.objects - before.objects, after.blocks - before.blocks
    LOG.info("before %s, after %s; %+d objects, %+d blocks", before.usage, after.usage, *more)
    with stage.host.client() as client:
        listed = {product["sku"]: product for product in client.get("/api/v2/products").json()}
    assert listed == {sku: {**product, "inStock": True} for sku, product in SEEDS.items()}
    assert_no_growth(before, after)


def check_answer(answer: httpx.Response, status: int) -> str:
    """Return whether messages answered; fail if the answer is neither its own nor a clean 404."""
    if answer.status_code == status:
        return "itself"
    assert answer.status_code == 404, f"{answer.status_code} {answer.text}"
    if not answer.content:
        return "itself"  # an unknown message has no body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == 404
    return "gone"


def assert_no_growth(before: Held, after: Held) -> None:
    """Compare two measurements with cycles between them."""
    grown: dict[str, Any] = {kind: number - before.kinds.get(kind, 0) for kind, number in after.kinds.items()}
    assert after.objects - before.objects < 20 * CYCLES, {kind: more for kind, more in grown.items() if more > CYCLES}
    assert after.blocks - before.blocks < 20 * CYCLES
    assert after.modules == before.modules
    assert after.others <= before.others
    assert after.answering <= THREADS + PLUGINS
    assert after.native <= GRANIAN
    assert after.usage.files <= before.usage.files
    assert after.usage.memory - before.usage.memory < 8 * 1024 * 1024
