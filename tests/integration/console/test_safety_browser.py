"""Access to the console, and scripts that must not run there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from .kit import HEADINGS, NASTY, Console, complaints, with_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from plughost.testing import RunningHost

pytestmark = with_browser


def test_it_opens_only_through_a_link(browser: Chrome, host: RunningHost) -> None:
    """The bare address is refused, a link works once, and the console stays open for the browser that used it."""
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


def test_clients_data_is_shown_and_not_executed(console: Console) -> None:
    """A SKU that is a script is text in the rows, and a path among the requests as well; search finds it."""
    console.show("/stores/catalog/products")
    assert NASTY in console.text("table")
    field = console.find("#q")
    field.send_keys("WINDOW.ran", Keys.ENTER)
    console.wait.until(lambda browser: "1 row with" in browser.find_element(By.TAG_NAME, "main").text)
    assert NASTY in console.text("table")
    for path in ("/requests", "/plugins/failing"):
        console.show(path)
        assert "window.ran" in console.text("main")
        assert console.browser.execute_script("return window.ran") is None
    assert complaints(console.browser) == []


@contextmanager
def _elsewhere(page: str) -> Iterator[str]:
    """Serve a page from another port, as any program on this machine can."""

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
    """Even with the token and the browser's cookie, a form on another page changes nothing (CONTRACT 2)."""
    token = console.find("input[name=csrf]").get_attribute("value")
    generation = host.host.generation.number
    page = (
        f'<form method="post" action="{host.url()}/q/dev/reload"><input name="csrf" value="{token}"><button>Go</button>'
    )
    with _elsewhere(page) as address:
        console.browser.get(address)
        console.browser.find_element(By.TAG_NAME, "button").click()
        console.wait.until(lambda browser: browser.find_elements(By.TAG_NAME, "h1"))
        assert "Web pages of other sites may not write here" in console.text("main")
    assert host.host.generation.number == generation


def test_a_foreign_name_is_refused(console: Console, host: RunningHost) -> None:
    """A foreign name that resolves to this machine shows nothing (DNS rebinding)."""
    console.browser.get(f"http://console.example:{host.port()}/q/dev")
    assert "The console answers to localhost" in console.text("main")
