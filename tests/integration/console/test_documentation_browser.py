"""The host's documentation in a browser: search, themes, phones, and no requests to other hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from plughost.testing import RunningHost, plugin_distribution, running_host
from plughost_docs.plugin import Plugin

from .kit import complaints, faults, requested, with_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = [
    with_browser,
    pytest.mark.skipif(find_spec("sphinx") is None, reason="the documentation is not built: there is no Sphinx"),
]

ROOT: Final = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """A host that serves this checkout's pages."""
    folder = tmp_path_factory.mktemp("site") / "html"
    subprocess.run([sys.executable, str(ROOT / "plugins" / "docs" / "build_site.py"), str(folder)], check=True)
    with running_host(distributions=[plugin_distribution("docs", Plugin(folder))], strict=True) as running:
        yield running


def set_up(browser: Chrome, width: int, theme: str) -> None:
    """Set the browser's width and preferred theme."""
    wanted = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wanted)
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def test_search_finds_a_page_without_other_hosts(browser: Chrome, host: RunningHost) -> None:
    """The front page's search lists pages with the words around each match; the policy blocks nothing."""
    browser.get(f"{host.url()}/q/docs")
    browser.find_element(By.CSS_SELECTOR, "input[type=search], input[name=q]").send_keys("drain\n")
    wait: WebDriverWait[Chrome] = WebDriverWait(browser, 60)
    found = wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, "#search-results p.context"))
    assert "drain" in str(found.get_attribute("textContent")).lower()
    assert requested(browser) == {urlsplit(host.url()).netloc}
    assert complaints(browser) == []


@pytest.mark.parametrize("look", [(1280, "light"), (1280, "dark"), (320, "light"), (320, "dark")], ids=str)
@pytest.mark.parametrize("page", ["index", "tour", "operators/settings", "how-it-works", "errors"])
def test_a_page_is_complete_and_accessible(
    browser: Chrome, host: RunningHost, axe: str, page: str, look: tuple[int, str]
) -> None:
    """In light and dark, wide and narrow, nothing overflows, every picture is there, and axe-core finds nothing."""
    set_up(browser, *look)
    browser.get(f"{host.url()}/q/docs/{page}.html")
    sizes: list[Any] = browser.execute_script(
        "const root = document.documentElement;"
        "const broken = (each) => each.complete && !each.naturalWidth;"
        "const lost = [...document.images].filter(broken).map((each) => each.src);"
        "return [root.scrollWidth - root.clientWidth, lost];"
    )
    assert sizes == [0, []]
    assert faults(browser, axe) == []
    assert complaints(browser) == []


@pytest.mark.parametrize("page", ["operators/settings", "operators/cli", "errors"])
def test_a_table_is_read_without_scrolling(browser: Chrome, host: RunningHost, page: str) -> None:
    """On a laptop's screen no table is wider than its page."""
    set_up(browser, 1280, "light")
    browser.get(f"{host.url()}/q/docs/{page}.html")
    look = "return [...document.querySelectorAll('.table-wrapper')].map((each) => each.scrollWidth - each.clientWidth)"
    assert set(browser.execute_script(look)) <= {0}


def test_the_sidebar_unfolds_the_readers_part(browser: Chrome, host: RunningHost) -> None:
    """The sidebar shows the pages of the reader's part and folds the others; hyphens are kept."""
    set_up(browser, 1280, "light")
    browser.get(f"{host.url()}/q/docs/operators/settings.html")
    sidebar = browser.find_element(By.CSS_SELECTOR, ".sidebar-tree").text
    assert "Roll back a plugin" in sidebar
    assert "Plugin authors" in sidebar
    assert "Testing and publishing" not in sidebar
    assert "with --dev only" in browser.find_element(By.TAG_NAME, "article").text
