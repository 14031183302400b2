"""Every page of the console: complete, accessible, on a phone, by keyboard."""

from __future__ import annotations

import re
from importlib import metadata
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from plughost.testing import plugin_distribution, running_host

from .kit import HEADINGS, Console, Numbered, complaints, faults, requested, with_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from plughost.testing import RunningHost

pytestmark = with_browser


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.thorough)])
def test_every_page_is_complete_and_accessible(console: Console, axe: str, host: RunningHost, scheme: str) -> None:
    """Each page is drawn without errors or requests to other hosts, and axe-core finds no fault."""
    browser = console.browser
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    for path, heading in HEADINGS.items():
        console.show(path)
        assert console.heading == heading
        if path in ("", "/plugins/catalog-crud"):
            browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert faults(browser, axe) == [], path
    assert complaints(browser) == []
    assert requested(browser) == {urlsplit(host.url()).netloc}


def test_the_page_without_a_session_is_accessible(browser: Chrome, axe: str, host: RunningHost) -> None:
    """The explanation of how to get a link is accessible."""
    browser.get(f"{host.url()}/q/dev")
    assert faults(browser, axe) == []


def test_every_page_fits_a_phone(console: Console) -> None:
    """At 320 pixels no page is wider than the window."""
    metrics = {"width": 320, "height": 740, "deviceScaleFactor": 1, "mobile": False}
    console.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wide = {}
    for path in HEADINGS:
        console.show(path)
        if console.overflow() > 0:
            wide[path] = console.overflow()
    assert wide == {}


def test_no_table_is_cut_off_on_a_laptop(console: Console) -> None:
    """At 1024 pixels every table with a fixed head, which can't be scrolled sideways, is shown whole."""
    metrics = {"width": 1024, "height": 740, "deviceScaleFactor": 1, "mobile": False}
    console.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    look = """
        const tables = [...document.querySelectorAll(".scroll")];
        const clipped = tables.filter((each) => getComputedStyle(each).overflow === "clip");
        return clipped.map((each) => each.scrollWidth - each.clientWidth).filter((each) => each > 0);
    """
    cut = {}
    for path in HEADINGS:
        console.show(path)
        if found := console.browser.execute_script(look):
            cut[path] = found
    assert cut == {}


def test_a_tablet_shows_the_whole_navigation(console: Console) -> None:
    """At 768 pixels, every page is visible in the navigation without scrolling."""
    metrics = {"width": 768, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    console.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    console.show("/plugins")
    hidden = console.browser.execute_script(
        "const side = document.querySelector('.side'); return side.scrollWidth - side.clientWidth"
    )
    assert (hidden, console.overflow()) == (0, 0)


def test_the_keyboard_reaches_everything(console: Console) -> None:
    """The first Tab stop skips the navigation, and every stop is visible."""
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


def test_two_hundred_plugins_are_usable(browser: Chrome) -> None:
    """Two hundred plugins fit a phone, and the filter finds one of them."""
    brought = [plugin_distribution(f"numbered-{number}", Numbered(number)) for number in range(200)]
    with running_host(settings={"hook_timeout": 60}, distributions=[*metadata.distributions(), *brought]) as host:
        console = Console(browser, host)
        metrics = {"width": 320, "height": 740, "deviceScaleFactor": 1, "mobile": False}
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
        assert complaints(browser) == []


def test_the_navigation_stays_in_view(console: Console) -> None:
    """In the middle of a long page, the navigation and the table's head are still visible."""
    console.show("/settings")
    console.browser.execute_script("document.querySelector('[data-list] tbody tr:last-child').scrollIntoView()")
    top = "return Math.round(document.querySelector(arguments[0]).getBoundingClientRect().top)"
    assert console.browser.execute_script("return scrollY") > 0
    assert console.browser.execute_script(top, ".side [aria-current]") > 0
    assert -60 < console.browser.execute_script(top, "[data-list] thead th") <= 0


def test_a_failed_plugin_shows_its_traceback(console: Console) -> None:
    """Its page has the log lines with the cause, and the overview and the table of plugins list it first."""
    console.show("/plugins")
    assert console.text("tbody th a") == "failing"
    console.show("/plugins/failing")
    shown = console.text(".log details[open] > pre")
    assert "RuntimeError" in shown
    assert "kit.py" in shown.splitlines()[1], "its own frames come first"
    assert "registry.py" not in shown
    console.find(".log details details summary").click()
    assert "registry.py" in console.text(".log details details pre")


def test_a_problem_is_reported_once(console: Console) -> None:
    """The overview names a failed plugin, and not also its health check and its reload."""
    console.show("")
    assert "failing" in console.text("section.notice.bad")
    assert console.browser.execute_script("return document.querySelectorAll('.notice.bad').length") == 1


def test_health_is_shown_in_readable_sizes_and_ages(console: Console) -> None:
    """Nobody has to read eleven digits of bytes, or a time in another time zone."""
    console.show("/health")
    rows = "return [...document.querySelectorAll('td.value')].map((each) => each.innerText).join('\\n')"
    shown = console.browser.execute_script(rows)
    assert re.search(r"free: [\d.,]+ [MGT]iB", shown)
    assert re.search(r"created: .* ago", shown)
    assert not re.search(r"\d{8}|\dT\d", shown)


def test_a_request_is_readable_on_a_phone(console: Console, host: RunningHost) -> None:
    """At 320 pixels, with a scrollbar, the page's head is one row, and values of headers have room for words."""
    with host.client() as client:
        client.get("/api/v3/products")
    metrics = {"width": 320, "height": 740, "deviceScaleFactor": 1, "mobile": False}
    console.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    console.show("/requests")
    console.find("tbody a.plain").click()
    console.wait_for_text("h2", "Headers")
    assert console.overflow() <= 0
    look = (
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.getBoundingClientRect()[arguments[1]])"
    )
    assert min(console.browser.execute_script(look, ".headers td", "width")) > 200
    assert console.browser.execute_script(look, ".top", "height")[0] < 70
