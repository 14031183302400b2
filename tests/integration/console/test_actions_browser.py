"""The buttons of the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from .kit import Console, complaints, with_browser

if TYPE_CHECKING:
    from plughost.testing import RunningHost

pytestmark = with_browser


def test_a_plugin_is_disabled_and_enabled(console: Console, host: RunningHost) -> None:
    """One button removes the plugin's routes, another restores them; the result is shown, and has the focus."""
    console.show("/plugins")
    assert "Disable messages: done" in console.press("messages", "Disable")
    assert httpx.get(f"{host.url()}/messages").status_code == 404
    assert "Enable messages: done" in console.press("messages", "Enable")
    assert httpx.get(f"{host.url()}/messages").status_code == 200
    assert complaints(console.browser) == []


def test_a_plugins_data_is_purged(console: Console, host: RunningHost) -> None:
    """A disabled plugin's page offers it; Cancel, which has the focus, keeps the rows, and Continue drops them."""
    kept = httpx.post(f"{host.url()}/messages", json={"content": "kept so far"})
    assert kept.status_code == 201
    console.show("/plugins")
    console.press("messages", "Disable")
    console.show("/plugins/messages")
    button = "form[action$='/purge'] button"
    console.find(button).click()
    console.wait_for_text("dialog[open]", "All rows in its stores are deleted")
    assert console.browser.switch_to.active_element.text == "Cancel"
    console.find("dialog[open] button.quiet").click()
    console.find(button).click()
    console.find("dialog[open] button[value=yes]").click()
    console.wait_for_text("#result:not([data-job])", "Deleted: ")
    console.show("/plugins")
    console.press("messages", "Enable")
    assert httpx.get(f"{host.url()}{kept.headers['Location']}").status_code == 404
    assert complaints(console.browser) == []


def test_a_reload_asks_first(console: Console, host: RunningHost) -> None:
    """The question says that changed plugins lose what they hold in memory."""
    generation = host.host.generation.number
    console.show("/plugins")
    console.find("form[action$='/reload'] button").click()
    console.wait_for_text("dialog[open]", "lose their data in memory")
    console.find("dialog[open] button[value=yes]").click()
    console.wait_for_text("#result:not([data-job])", "Reload: done")
    assert host.host.generation.number == generation + 1
    assert complaints(console.browser) == []


def test_a_writing_request_is_repeated_after_a_question(console: Console, host: RunningHost) -> None:
    """It is sent again with its body, which now is a duplicate; the page of the new request is shown."""
    product = {"sku": "REPLAYED", "name": "Tea", "price": 1, "stock": 1}
    headers = {"X-Request-ID": "the-one-to-replay"}
    assert httpx.post(f"{host.url()}/api/v3/products", json=product, headers=headers).status_code == 201
    console.show("/requests?q=the-one-to-replay")
    console.find("tbody a").click()
    console.find("form[action$='/replay'] button").click()
    console.wait_for_text("dialog[open]", "The host will process it again")
    console.find("dialog[open] button[value=yes]").click()
    console.wait_for_text("main .status", "409")
    assert complaints(console.browser) == []
