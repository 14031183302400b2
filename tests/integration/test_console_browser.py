"""The development console in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from plughost import Operation, Page, PluginContext, Route, RouteGroup, hookimpl
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    from selenium.webdriver.remote.webelement import WebElement

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    not (DRIVER and BROWSER),
    reason="the console is not tried in a browser: chromium and chromedriver are not installed",
)

AXE = "axe-core@4.14.1"
NASTY = "<script>window.ran = true</script><img src=x onerror='window.ran = true'>"
HEADINGS = {
    "": "What is running here",
    "/plugins": "Plugins",
    "/plugins/catalog-crud": "catalog-crud",
    "/plugins/failing": "failing",
    "/routes": "Routes",
    "/requests": "Requests",
    "/log": "Log",
    "/stores": "Stores",
    "/stores/catalog/products": "products",
    "/settings": "Settings",
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
    """One of many plugins."""

    def __init__(self, number: int) -> None:
        """Take a number."""
        self._number = number

    def on_get(self, req: Any, resp: Any) -> None:
        """Answer."""

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount a route."""
        route = Route("", self, {"GET": Operation(summary="Answer")})
        return [RouteGroup(prefix=f"/numbered/{self._number}", routes=(route,))]


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host with every plugin, one of them disabled, and two of third parties."""
    brought = [plugin_distribution("almanac", Almanac), plugin_distribution("failing", Failing)]
    settings = {"disabled": ["catalog-v2"]}
    with running_host(settings=settings, distributions=[*metadata.distributions(), *brought]) as running:
        with running.client() as client:
            for sku in (NASTY, *(f"TEA-{number}" for number in range(60))):
                client.post("/api/v3/products", json={"sku": sku, "name": "Green tea", "price": 1, "stock": 1})
            client.get(f"/nothing/{NASTY}")
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Chrome]:
    """A browser, for which the name console.example is this machine."""
    options = ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1280,1000",
        "--host-resolver-rules=MAP console.example 127.0.0.1",
    ):
        options.add_argument(argument)
    options.binary_location = BROWSER or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = Chrome(options=options, service=Service(DRIVER))
    try:
        yield browser
    finally:
        browser.quit()


@pytest.fixture
def browser(opened: Chrome) -> Iterator[Chrome]:
    """The browser, without cookies, at its usual width, whose logs begin here."""
    opened.execute_cdp_cmd("Network.clearBrowserCookies", {})
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for kind in ("browser", "performance"):
        _log(opened, kind)
    yield opened
    opened.get("about:blank")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, as npm has it."""
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


class Console:
    """The console, as a person uses it."""

    def __init__(self, browser: Chrome, host: RunningHost) -> None:
        """Enter by a new link."""
        self.browser = browser
        self.url = host.url()
        self.wait: WebDriverWait[Chrome] = WebDriverWait(browser, 60)
        browser.get(host.host.view.answer_query("dev-console", "link")["link"])

    def show(self, path: str) -> None:
        """Open a page of it."""
        self.browser.get(f"{self.url}/q/dev{path}")

    @property
    def heading(self) -> str:
        """The page's heading."""
        return self.browser.find_element(By.TAG_NAME, "h1").text

    def find(self, selector: str) -> WebElement:
        """Return an element once it is there."""
        return self.wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, selector))

    def press(self, row: str, button: str) -> str:
        """Press the button of a plugin, and return the result once the page shows it and has moved the focus there."""
        found = f"//tbody[.//a[text()='{row}']]//button[starts-with(normalize-space(), '{button}')]"
        self.browser.find_element(By.XPATH, found).click()
        # In one step, since the page is loaded again when the host has done it.
        look = """
            const result = document.querySelector("#result:not([data-job])");
            return result && document.activeElement === result ? result.innerText : "";
        """
        told = f"{button} {row}: "
        done = WebDriverWait(self.browser, 60, ignored_exceptions=[WebDriverException])
        done.until(lambda browser: told in browser.execute_script(look))
        return str(self.browser.execute_script(look))

    def overflow(self) -> int:
        """Return how many pixels the page is wider than the window."""
        width: int = self.browser.execute_script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width


@pytest.fixture
def console(browser: Chrome, host: RunningHost) -> Console:
    """The console, entered."""
    return Console(browser, host)


def _log(browser: Chrome, name: str) -> list[dict[str, Any]]:
    """Return what came into one of the browser's logs since it was asked for last."""
    entries: list[dict[str, Any]] = browser.get_log(name)  # type: ignore[no-untyped-call] # selenium doesn't type it
    return entries


def _complaints(browser: Chrome) -> list[str]:
    """Return the errors and warnings in the browser's console."""
    return [entry["message"] for entry in _log(browser, "browser") if entry["level"] in ("SEVERE", "WARNING")]


def _requested(browser: Chrome) -> set[str]:
    """Return the hosts that the browser asked for something."""
    messages = (json.loads(entry["message"])["message"] for entry in _log(browser, "performance"))
    urls = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return {urlsplit(url).netloc for url in urls if url.startswith(("http", "ws"))}


def _serious(browser: Chrome, axe: str) -> list[tuple[str, list[str]]]:
    """Return the serious faults that axe-core finds in the page, with the elements that have them."""
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run().then(arguments[0], (error) => arguments[0](String(error)))")
    assert len(found["passes"]) > 10, "axe-core looked at the page"
    serious = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in serious]


def test_it_opens_by_a_link_and_by_nothing_else(browser: Chrome, host: RunningHost) -> None:
    """The address alone is refused, a link works once, and the console stays open for who used it."""
    console = Console(browser, host)
    assert console.heading == HEADINGS[""]
    link = host.host.view.answer_query("dev-console", "link")["link"]
    assert httpx.get(link).status_code == 303
    browser.get(link)
    assert console.heading == HEADINGS[""]
    browser.delete_all_cookies()
    for address in (link, f"{host.url()}/q/dev", f"{host.url()}/"):
        browser.get(address)
        assert console.heading == "The console is closed"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_every_page_is_shown_and_accessible(console: Console, axe: str, host: RunningHost, scheme: str) -> None:
    """Each page is drawn without a complaint, asks nobody else, and axe-core finds nothing serious in it."""
    browser = console.browser
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    for path, heading in HEADINGS.items():
        console.show(path)
        assert console.heading == heading
        if path in ("", "/plugins/catalog-crud"):
            browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert _serious(browser, axe) == [], path
    assert _complaints(browser) == []
    assert _requested(browser) == {urlsplit(host.url()).netloc}


def test_the_page_without_a_session_is_accessible(browser: Chrome, axe: str, host: RunningHost) -> None:
    """What tells how to get a link can be read by everyone."""
    browser.get(f"{host.url()}/q/dev")
    assert _serious(browser, axe) == []


def test_every_page_fits_a_phone(console: Console) -> None:
    """At 360 pixels no page is wider than the window."""
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False}
    console.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wide = {}
    for path in HEADINGS:
        console.show(path)
        if console.overflow() > 0:
            wide[path] = console.overflow()
    assert wide == {}


def test_the_keyboard_reaches_everything(console: Console) -> None:
    """The first stop skips the navigation, and every stop is visible."""
    browser = console.browser
    browser.switch_to.active_element.send_keys(Keys.TAB)
    first = browser.switch_to.active_element
    assert first.text == "Skip to the content"
    first.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "main"
    reachable = browser.execute_script(
        "return document.querySelectorAll('a[href], button:not([hidden]), input:not([type=hidden]), summary').length"
    )
    seen = set()
    console.show("/plugins")
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        assert active.value_of_css_property("outline-style") == "solid", active.get_attribute("outerHTML")
        seen.add(active.id)
    assert len(seen) >= min(40, reachable) - 1


def test_a_plugin_is_disabled_and_enabled(console: Console, host: RunningHost) -> None:
    """A button takes its routes away, and another brings them back; the result is shown, and has the focus."""
    console.show("/plugins")
    assert "Disable messages: done" in console.press("messages", "Disable")
    assert httpx.get(f"{host.url()}/messages").status_code == 404
    assert "Enable messages: done" in console.press("messages", "Enable")
    assert httpx.get(f"{host.url()}/messages").status_code == 200
    assert _complaints(console.browser) == []


def test_a_request_is_seen_as_it_comes(console: Console, host: RunningHost) -> None:
    """A row appears without loading the page again, and the plot of its plugin."""
    console.show("/requests")
    httpx.get(f"{host.url()}/api/v1/products", headers={"X-Request-ID": "seen-live"})
    row = console.wait.until(lambda browser: browser.find_element(By.XPATH, "//tr[.//code[text()='seen-live']]"))
    assert "/api/v1/products" in row.text
    plots = console.find("[data-plots]")
    assert "catalog-v1" in plots.text
    assert plots.find_elements(By.CSS_SELECTOR, "svg .mark.ok")
    assert _complaints(console.browser) == []


def test_the_log_is_seen_as_it_is_written(console: Console, host: RunningHost) -> None:
    """A line appears, and the filter by level hides it."""
    console.show("/log")
    host.host.logger.warning("something is odd", plugin="almanac", detail=NASTY)
    found = "//li[contains(., 'something is odd')]"
    line = console.wait.until(lambda browser: browser.find_element(By.XPATH, found))
    assert NASTY in line.text
    level = console.find("[data-level]")
    level.send_keys("error")
    console.wait.until(lambda _: not line.is_displayed())


def test_what_clients_send_is_shown_and_not_run(console: Console) -> None:
    """A SKU that is a script is text in the rows, and so is a path among the requests; search finds it."""
    console.show("/stores/catalog/products")
    assert NASTY in console.find("table").text
    field = console.find("#q")
    field.send_keys("WINDOW.ran", Keys.ENTER)
    console.wait.until(lambda browser: "1 row with" in browser.find_element(By.TAG_NAME, "main").text)
    assert NASTY in console.find("table").text
    for path in ("/requests", "/plugins/failing"):
        console.show(path)
        assert "window.ran" in console.find("main").text
        assert console.browser.execute_script("return window.ran") is None
    assert _complaints(console.browser) == []


def test_rows_are_paged(console: Console) -> None:
    """The second page shows the rest."""
    console.show("/stores/catalog/products")
    console.find("a[rel=next]").click()
    console.wait.until(lambda browser: "page 2 of 2" in browser.find_element(By.TAG_NAME, "main").text)
    assert "TEA-59" in console.find("table").text


@contextmanager
def _elsewhere(page: str) -> Iterator[str]:
    """Serve a page from another port, as any program on this machine may."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def test_a_form_on_another_page_is_refused(console: Console, host: RunningHost) -> None:
    """Even one that got hold of the token, and to which the browser adds the cookie, changes nothing (CONTRACT 2)."""
    token = console.find("input[name=csrf]").get_attribute("value")
    generation = host.host.number
    page = (
        f'<form method="post" action="{host.url()}/q/dev/reload"><input name="csrf" value="{token}"><button>Go</button>'
    )
    with _elsewhere(page) as address:
        console.browser.get(address)
        console.browser.find_element(By.TAG_NAME, "button").click()
        console.wait.until(lambda browser: browser.find_elements(By.TAG_NAME, "h1"))
        assert "Web pages of other sites may not write here" in console.find("main").text
    assert host.host.number == generation


def test_a_foreign_name_is_refused(console: Console, host: RunningHost) -> None:
    """A name of somebody else's that leads to this machine shows nothing (DNS rebinding)."""
    console.browser.get(f"http://console.example:{host.port()}/q/dev")
    assert "The console answers to localhost" in console.find("main").text


def test_two_hundred_plugins_are_usable(browser: Chrome) -> None:
    """They fit a phone, and the filter finds one of them."""
    brought = [plugin_distribution(f"numbered-{number}", Numbered(number)) for number in range(200)]
    with running_host(settings={"hook_timeout": 60}, distributions=[*metadata.distributions(), *brought]) as host:
        console = Console(browser, host)
        metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        for path in ("/plugins", ""):
            console.show(path)
            assert console.overflow() <= 0
            field = console.find("[data-filter]")
            field.send_keys("numbered-177")
            console.wait.until(
                lambda browser: browser.find_element(By.CSS_SELECTOR, "[data-filtered]").text[:2] == "1 "
            )
            shown = [
                each.text for each in browser.find_elements(By.CSS_SELECTOR, "[data-item] a") if each.is_displayed()
            ]
            assert "numbered-177" in shown
            assert "numbered-178" not in shown
        assert _complaints(browser) == []
