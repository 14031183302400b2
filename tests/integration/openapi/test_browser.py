"""Swagger UI in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait
from tests.integration.browsers import BROWSER, DRIVER, opened_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

    from plughost.testing import RunningHost

pytestmark = pytest.mark.skipif(
    not (DRIVER and BROWSER), reason="Swagger UI is not tried in a browser: chromium and chromedriver are not installed"
)


@pytest.fixture
def browser() -> Iterator[Chrome]:
    """A browser that records its console and its network requests."""
    with opened_browser("--window-size=1280,1600") as opened:
        yield opened


class SwaggerUI:
    """Swagger UI as a person uses it."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self._browser = browser
        self._wait: WebDriverWait[Chrome] = WebDriverWait(browser, 60)
        browser.get(f"{url}/q/swagger-ui")
        self._find(".opblock")

    def choose(self, site: str) -> None:
        """Choose a site."""
        Select(self._find(".topbar select")).select_by_visible_text(site)
        self._wait.until(lambda browser: f"plughost: {site}" in browser.find_element(By.CSS_SELECTOR, ".title").text)

    def authorize(self, **values: str) -> None:
        """Fill in the fields of one scheme behind the button "Authorize"."""
        self._find("button.authorize").click()
        for field, value in values.items():
            self._find(f"#auth-{field.replace('_', '-')}").send_keys(value)
        scheme = next(iter(values)).partition("_")[0]
        form = self._find(f"form:has(#auth-{scheme}-{'username' if scheme == 'basic' else 'value'})")
        form.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
        self._find("button.btn-done").click()

    def execute(self, operation: str) -> tuple[int, str]:
        """Open an operation, press "Execute", and return the answer's status and body."""
        block = f"[id$='-{operation}']"
        self._find(f"{block} .opblock-summary-control").click()
        self._find(f"{block} button.execute").click()
        status = self._find(f"{block} .live-responses-table tbody .response-col_status")
        body = self._find(f"{block} .live-responses-table tbody pre")
        return int(status.text.split()[0]), body.text

    def _find(self, selector: str) -> WebElement:
        """Wait until an element is visible, and return it."""

        def shown(browser: Chrome) -> list[WebElement]:
            return [each for each in browser.find_elements(By.CSS_SELECTOR, selector) if each.is_displayed()]

        return self._wait.until(shown)[0]


def _log(browser: Chrome, name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = browser.get_log(name)  # type: ignore[no-untyped-call] # selenium doesn't type it
    return entries


def _requested(browser: Chrome) -> set[str]:
    """Return the hosts to which the browser sent requests."""
    messages = (json.loads(entry["message"])["message"] for entry in _log(browser, "performance"))
    urls = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return {urlsplit(url).netloc for url in urls if url.startswith(("http", "ws"))}


def _complaints(browser: Chrome) -> list[str]:
    """Return the errors and warnings in the browser's console."""
    return [entry["message"] for entry in _log(browser, "browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_it_creates_a_product(browser: Chrome, host: RunningHost) -> None:
    """The page shows the description, sends its example, and sends requests to this host only."""
    page = SwaggerUI(browser, host.url())
    status, body = page.execute("createProductV1")
    assert (status, json.loads(body)["sku"]) == (201, "TEA-250")
    assert _requested(browser) == {urlsplit(host.url()).netloc}
    assert _complaints(browser) == []


def test_it_logs_in_on_the_other_site(browser: Chrome, host: RunningHost) -> None:
    """On the same page, credentials become a token, which opens a protected resource on the library's own port."""
    page = SwaggerUI(browser, host.url())
    page.choose("library")
    page.authorize(basic_username="user@example.org", basic_password="user")
    status, token = page.execute("login")
    assert status == 200
    assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token)
    page.authorize(bearer_value=token)
    status, body = page.execute("getIdentity")
    assert (status, json.loads(body)["email"]) == (200, "user@example.org")
    assert _requested(browser) == {urlsplit(host.url(site)).netloc for site in ("main", "library")}
    assert _complaints(browser) == []
