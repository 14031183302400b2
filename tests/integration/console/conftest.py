"""A browser, and a host with every plugin, for the tests of the console."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING

import pytest
from tests.integration.browsers import opened_browser

from plughost.testing import RunningHost, plugin_distribution, running_host

from .kit import LONG, NASTY, Almanac, Console, Failing, Numbered, log_of

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

AXE = "axe-core@4.14.1"


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host with every plugin, one of them disabled, and with third-party plugins, one with a long name."""
    plugins = {"almanac": Almanac, "failing": Failing, LONG: Numbered(0)}
    brought = [plugin_distribution(name, plugin) for name, plugin in plugins.items()]
    settings = {"disabled": ["catalog-v2"]}
    with running_host(settings=settings, distributions=[*metadata.distributions(), *brought]) as running:
        with running.client() as client:
            for sku in (NASTY, *(f"TEA-{number}" for number in range(60))):
                client.post("/api/v3/products", json={"sku": sku, "name": "Green tea", "price": 1, "stock": 1})
            client.get(f"/nothing/{NASTY}")
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Chrome]:
    """A browser that resolves console.example to this machine."""
    with opened_browser("--window-size=1280,1000", "--host-resolver-rules=MAP console.example 127.0.0.1") as browser:
        yield browser


@pytest.fixture
def browser(opened: Chrome) -> Iterator[Chrome]:
    """The browser, without cookies, at its usual width, with empty logs."""
    opened.execute_cdp_cmd("Network.clearBrowserCookies", {})
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for kind in ("browser", "performance"):
        log_of(opened, kind)
    yield opened
    opened.get("about:blank")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, installed by npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("the console's accessibility is not tested: npm, which fetches axe-core, is not installed")
    folder = tmp_path_factory.mktemp("axe")
    fetched = subprocess.run(
        [npm, "pack", AXE, "--silent"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if fetched.returncode:
        pytest.skip(f"the console's accessibility is not tested: npm can't fetch {AXE}: {fetched.stderr.strip()}")
    with tarfile.open(folder / fetched.stdout.split()[-1]) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


@pytest.fixture
def console(browser: Chrome, host: RunningHost) -> Console:
    """The console, logged in."""
    return Console(browser, host)
