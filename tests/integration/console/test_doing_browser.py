"""What people do in the console: try an operation, change a setting, navigate, choose a theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from .kit import Console, complaints, faults, with_browser

if TYPE_CHECKING:
    from plughost.testing import RunningHost

pytestmark = with_browser


def test_a_secured_route_is_called_from_its_form(console: Console, axe: str) -> None:
    """From the list of routes, a demo account logs in, and the answer appears below the form."""
    console.show("/routes")
    console.find("[data-filter]").send_keys("setup/secured get")
    console.find("tr[data-item]:not([hidden]) a[href*='/try?']").click()
    console.wait_for_text("h1", "/setup/secured")
    console.find("form.try button").click()
    console.wait_for_text("#answer", "200")
    assert "example.org" in console.text("#answer")
    console.find("#answer details:last-of-type summary").click()
    assert faults(console.browser, axe) == []
    console.find("#answer .outcome a").click()
    console.wait_for_text("main", "Authorization")
    assert "Bearer ••••••" in console.text("main")
    assert complaints(console.browser) == []


def test_a_setting_is_changed_after_a_preview(console: Console, host: RunningHost, axe: str) -> None:
    """The first button shows the difference, and only the second one writes the file."""
    console.show("/settings/edit?key=plugins.dev-console.requests")
    field = console.find("#value")
    field.clear()
    field.send_keys("501", Keys.ENTER)
    console.wait_for_text("#difference", "+requests = 501")
    assert faults(console.browser, axe) == []
    file = host.host.settings.file
    assert file is not None
    assert "requests = 501" not in file.read_text()
    console.find("#difference button").click()
    console.wait_for_text("#result", "done")
    assert "requests = 501" in file.read_text()
    console.find("#result button").click()
    console.wait_for_text("#difference", "-requests = 501")
    console.find("#difference button").click()
    console.wait_for_text("#result", "done")
    assert "requests = 501" not in file.read_text()
    assert complaints(console.browser) == []


def test_the_palette_finds_a_plugin(console: Console, axe: str) -> None:
    """Ctrl+K, a few letters and Enter lead to the plugin's page, without a mouse."""
    ActionChains(console.browser).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
    console.wait_for_text("dialog.palette li", "Routes")
    assert faults(console.browser, axe) == []
    console.browser.switch_to.active_element.send_keys("messages plugin")
    console.wait.until(lambda browser: len(browser.find_elements(By.CSS_SELECTOR, "dialog.palette li")) < 5)
    console.browser.switch_to.active_element.send_keys(Keys.ENTER)
    console.wait_for_text("h1", "messages")
    assert complaints(console.browser) == []


def test_the_theme_is_kept(console: Console) -> None:
    """The chosen theme also holds on the next page, whatever the system's theme is."""
    switch = console.find("[data-theme-switch]")
    while switch.text != "Theme: dark":
        switch.click()
    console.show("/plugins")
    dark = console.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(16, 21, 20)"
    console.find("[data-theme-switch]").click()
    assert console.text("[data-theme-switch]") == "Theme: system"


def test_another_tab_learns_of_a_change(console: Console, host: RunningHost) -> None:
    """The overview shows the change, and is drawn again without a reload of the page."""
    console.browser.execute_script("window.mark = true")
    console.wait.until(lambda browser: browser.execute_script("return stream?.readyState") == 1)
    host.host.view.control.switch("messages", enabled=False)
    console.wait_for_text("[data-news]", "disabled: messages")
    console.wait_for_text(".state", f"generation {host.host.generation.number}")
    assert console.browser.execute_script("return window.mark")
    host.host.view.control.switch("messages", enabled=True)
    console.wait_for_text("[data-news]", "added: messages")


def test_news_take_one_line_on_a_short_page(console: Console, host: RunningHost) -> None:
    """They aren't stretched where the navigation is longer than the page."""
    console.show("/settings/edit?key=grace_time")
    console.wait.until(lambda browser: browser.execute_script("return stream?.readyState") == 1)
    host.host.view.control.reload()
    console.wait_for_text("[data-news]", "serves")
    assert console.find("[data-news]").size["height"] < 60


def test_disabling_a_required_plugin_asks_first(console: Console, host: RunningHost) -> None:
    """The question names the dependents that will stop, and Cancel changes nothing."""
    generation = host.host.generation.number
    console.show("/plugins")
    row = "//tbody[.//a[text()='catalog-store']]//button[starts-with(normalize-space(), 'Disable')]"
    console.browser.find_element(By.XPATH, row).click()
    question = console.find("dialog[open]")
    assert "catalog-v3" in question.text
    question.find_element(By.CSS_SELECTOR, "button.quiet").click()
    console.wait.until(lambda browser: not browser.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    assert host.host.generation.number == generation


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_swagger_ui_links_to_the_console(console: Console, host: RunningHost, axe: str, scheme: str) -> None:
    """The link at its top is readable in light and dark."""
    browser = console.browser
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    browser.get(f"{host.url()}/q/swagger-ui")
    console.find(".opblock")
    browser.execute_script(axe)
    found = browser.execute_async_script("axe.run('.back', { runOnly: ['color-contrast'] }).then(arguments[0])")
    assert [each["nodes"] for each in found["violations"]] == []
    assert found["passes"]
    console.find(".back a").click()
    console.wait_for_text("h1", "Routes")
