"""Several versions of the documentation, published side by side as static files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from plughost_docs.pages import POLICY

from .kit import complaints, faults, requested, with_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = [
    with_browser,
    pytest.mark.skipif(find_spec("sphinx") is None, reason="the documentation is not built: there is no Sphinx"),
]

ROOT: Final = Path(__file__).parents[3]
LISTED: Final = [{"name": "2.0", "url": "../new/"}, {"name": "1.0", "url": "../old/"}]


class Strict(SimpleHTTPRequestHandler):
    """A file server with the policy of `/q/docs`."""

    def end_headers(self) -> None:
        """Add the policy."""
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of two versions, the older without the tour, and of a third one in `alone`."""
    folder = tmp_path_factory.mktemp("published")
    subprocess.run(
        [sys.executable, str(ROOT / "plugins" / "docs" / "build_site.py"), str(folder / "alone")], check=True
    )
    for name in ("new", "old"):
        shutil.copytree(folder / "alone", folder / name)
        (folder / name / "versions.json").write_text(json.dumps(LISTED))
    (folder / "old" / "tour.html").unlink()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Strict, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def found(browser: Chrome, selector: str) -> WebElement:
    """Wait for an element, and return it."""
    wait: WebDriverWait[Chrome] = WebDriverWait(browser, 60)
    return wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, selector))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_menu_leads_to_the_same_page_of_another_version(browser: Chrome, site: str, axe: str, theme: str) -> None:
    """It names the present version; nothing is blocked, no other host is asked, and axe-core finds nothing."""
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(f"{site}/new/operators/tls.html")
    menu = found(browser, ".versions summary")
    assert menu.text == "Version 2.0"
    menu.click()
    assert found(browser, ".versions [aria-current]").text == "2.0"
    assert faults(browser, axe) == []
    browser.find_element(By.LINK_TEXT, "1.0").click()
    wait: WebDriverWait[Chrome] = WebDriverWait(browser, 60)
    wait.until(lambda browser: browser.current_url == f"{site}/old/operators/tls.html")
    assert found(browser, ".versions summary").text == "Version 1.0"
    assert requested(browser) == {site.removeprefix("http://")}
    assert complaints(browser) == []


def test_a_page_that_the_other_version_lacks_leads_to_its_front_page(browser: Chrome, site: str) -> None:
    """A missing page leads there rather than to an error."""
    browser.get(f"{site}/new/tour.html")
    found(browser, ".versions summary").click()
    browser.find_element(By.LINK_TEXT, "1.0").click()
    wait: WebDriverWait[Chrome] = WebDriverWait(browser, 60)
    wait.until(lambda browser: browser.current_url == f"{site}/old/index.html")


def test_one_version_has_no_menu(browser: Chrome, site: str) -> None:
    """A site with only one version has nothing to choose."""
    browser.get(f"{site}/alone/index.html")
    found(browser, "[data-versions='1']")
    assert browser.find_elements(By.CLASS_NAME, "versions") == []
    assert complaints(browser) == []
