"""The browser tests' view of the console: pages, elements, buttons, and the browser's logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from tests.integration.browsers import BROWSER, DRIVER

from plughost import Operation, Page, PluginContext, Route, RouteGroup, hookimpl

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

    from plughost.testing import RunningHost

with_browser = pytest.mark.skipif(
    not (DRIVER and BROWSER),
    reason="the console is not tried in a browser: chromium and chromedriver are not installed",
)

LONG = "long" * 15
NASTY = "<script>window.ran = true</script><img src=x onerror='window.ran = true'>"
HEADINGS = {
    "": "Overview of this host",
    "/plugins": "Plugins",
    "/plugins/catalog-crud": "catalog-crud",
    "/plugins/failing": "failing",
    "/routes": "Routes",
    "/requests": "Requests",
    "/log": "Log",
    "/stores": "Stores",
    "/stores/catalog/products": "products",
    "/settings": "Settings",
    "/settings/edit?key=grace_time": "grace_time",
    "/try?site=main&method=POST&path=/api/v3/products": "POST /api/v3/products",
    "/stores/catalog/products?column=sku&value=TEA-3": "products",
    f"/stores/catalog/products?column=sku&value={LONG * 5}": "products",
    "/threads": "Threads",
    "/jobs": "Jobs",
    "/health": "Health",
    "/hooks": "Hooks",
    "/load": "Load report",
    "/pages/almanac/tides": "Tides",
}


class Almanac:
    """A third party's plugin with a page."""

    @hookimpl
    def register_pages(self, context: PluginContext[Any]) -> list[Page]:
        """Return the page."""
        return [Page(name="tides", title="Tides", render=lambda: "<h2>Today</h2><p>High water at six.</p>")]


class Failing:
    """A third party's plugin that fails."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Fail."""
        raise RuntimeError(NASTY)


class Numbered:
    """One of many plugins, with a number."""

    def __init__(self, number: int) -> None:
        """Store the number."""
        self._number = number

    def on_get(self, req: Any, resp: Any) -> None:
        """Answer."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount a route."""
        route = Route("", self, {"GET": Operation(summary="Answer")})
        return [RouteGroup(prefix=f"/numbered/{self._number}", routes=(route,))]


class Console:
    """The console as a person uses it."""

    def __init__(self, browser: Chrome, host: RunningHost) -> None:
        """Enter through a new link."""
        self.browser = browser
        self.url = host.url()
        # The page is loaded or drawn again whenever the host has news, so an element that was found may be gone.
        self.wait: WebDriverWait[Chrome] = WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException])
        browser.get(host.host.view.answer_query("dev-console", "link")["link"])

    def show(self, path: str) -> None:
        """Open a page of it."""
        self.browser.get(f"{self.url}/q/dev{path}")

    @property
    def heading(self) -> str:
        """Return the page's heading."""
        return self.browser.find_element(By.TAG_NAME, "h1").text

    def find(self, selector: str) -> WebElement:
        """Wait for an element, and return it."""
        return self.wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, selector))

    def text(self, selector: str) -> str:
        """Wait for an element, and return its text, in one step because the page may be drawn again meanwhile."""
        look = "return document.querySelector(arguments[0]).innerText"
        return str(self.wait.until(lambda browser: browser.execute_script(look, selector)))

    def wait_for_text(self, selector: str, text: str) -> None:
        """Wait until an element has a given text."""
        look = "return [...document.querySelectorAll(arguments[0])].some(each => each.innerText.includes(arguments[1]))"
        self.wait.until(lambda browser: browser.execute_script(look, selector, text))

    def press(self, row: str, button: str) -> str:
        """Press a plugin's button, wait until the page shows the result and focuses it, and return the result."""
        found = f"//tbody[.//a[text()='{row}']]//button[starts-with(normalize-space(), '{button}')]"
        self.browser.find_element(By.XPATH, found).click()
        if button == "Disable":
            self.find("dialog[open] button[value=yes]").click()
        # In one step, since the page is loaded again when the host is done.
        look = """
            const result = document.querySelector("#result:not([data-job])");
            return result && document.activeElement === result ? result.innerText : "";
        """
        prefix = f"{button} {row}: "
        self.wait.until(lambda browser: prefix in browser.execute_script(look))
        return str(self.browser.execute_script(look))

    def overflow(self) -> int:
        """Return how many pixels the page is wider than the window."""
        width: int = self.browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width


def log_of(browser: Chrome, name: str) -> list[dict[str, Any]]:
    """Return the entries of one of the browser's logs since the last call."""
    entries: list[dict[str, Any]] = browser.get_log(name)  # type: ignore[no-untyped-call] # selenium doesn't type it
    return entries


def complaints(browser: Chrome) -> list[str]:
    """Return the errors and warnings in the browser's console."""
    return [entry["message"] for entry in log_of(browser, "browser") if entry["level"] in ("SEVERE", "WARNING")]


def requested(browser: Chrome) -> set[str]:
    """Return the hosts to which the browser sent requests."""
    messages = (json.loads(entry["message"])["message"] for entry in log_of(browser, "performance"))
    urls = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return {urlsplit(url).netloc for url in urls if url.startswith(("http", "ws"))}


def faults(browser: Chrome, axe: str) -> list[tuple[str, list[str]]]:
    """Return the faults that axe-core finds in the page, of any impact, with their elements."""
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[0], (error) => arguments[0](String(error)))")
    assert len(found["passes"]) > 10, "axe-core looked at the page"
    return [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found["violations"]]
