"""Live views: requests and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from plughost.testing import running_host

from .kit import NASTY, Console, complaints, with_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from plughost.testing import RunningHost

pytestmark = with_browser

LEAVE = """
const form = document.querySelector("form[action$=leave]");
fetch(form.action, { method: "post", body: new URLSearchParams(new FormData(form)) });
"""


def test_a_request_is_shown_live(console: Console, host: RunningHost) -> None:
    """Without a reload of the page, a row appears, and the plot of its plugin."""
    console.show("/requests")
    httpx.get(f"{host.url()}/api/v1/products", headers={"X-Request-ID": "seen-live"})
    row = console.wait.until(lambda browser: browser.find_element(By.XPATH, "//tr[.//code[text()='seen-live']]"))
    assert "/api/v1/products" in row.text
    plots = console.find("[data-plots]")
    assert "catalog-v1" in plots.text
    assert plots.find_elements(By.CSS_SELECTOR, "svg .mark.ok")
    assert complaints(console.browser) == []


def test_the_log_is_shown_live(console: Console, host: RunningHost) -> None:
    """A line appears at the top, and a choice of levels hides it."""
    console.show("/log")
    host.host.logger.warning("something is odd", plugin="almanac", detail=NASTY)
    found = "//ol/li[1][contains(., 'something is odd')]"
    line = console.wait.until(lambda browser: browser.find_element(By.XPATH, found))
    assert NASTY in line.text
    console.find("#level").send_keys("error")
    console.wait.until(lambda browser: not browser.find_elements(By.XPATH, found))
    assert "level=error" in console.browser.current_url
    assert complaints(console.browser) == []


def test_the_log_is_searched_and_paused(console: Console, host: RunningHost) -> None:
    """Among 10,000 lines a search finds one; lines written during a pause are shown afterwards."""
    for number in range(10_000):
        host.host.logger.info("noise", number=number)
    host.host.logger.error("needle", exc_info=ValueError("sharp"))
    console.show("/log")
    console.find("#q").send_keys("needle")
    console.wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, "[data-count]").text == "1 line")
    folded = console.find(".log details")
    assert folded.get_attribute("open") is None
    folded.find_element(By.TAG_NAME, "summary").click()
    assert "ValueError: sharp" in console.text(".log pre")
    pause = console.find("[data-pause]")
    pause.click()
    host.host.logger.error("needle again")
    pause.click()
    console.wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, "[data-count]").text == "2 lines")
    assert complaints(console.browser) == []


def test_ten_thousand_lines_are_searchable(browser: Chrome) -> None:
    """The page draws 500 of them, says how many there are, and finds the oldest."""
    settings = {"plugins": {"dev-console": {"lines": 12_000}}}
    with running_host(["dev-console"], settings=settings) as host:
        for number in range(10_000):
            host.host.logger.info("noise", number=number, needle=f"line-{number}-of-many")
        console = Console(browser, host)
        console.show("/log")
        drawn = "return document.querySelectorAll('[data-lines] li').length"
        assert browser.execute_script(drawn) == 500
        assert int(console.text("[data-count]").split()[0].replace(",", "")) >= 10_000
        assert console.find("[data-more]").is_displayed()
        console.find("#q").send_keys("line-0-of-many")
        console.wait.until(lambda _: console.text("[data-count]") == "1 line")
        assert browser.execute_script(drawn) == 1
        console.find("#q").clear()
        console.find("#q").send_keys("noise")
        console.wait.until(lambda _: console.text("[data-count]") == "10,000 lines")
        assert browser.execute_script(drawn) == 500
        assert complaints(browser) == []


SLOW = """
const real = fetch;
window.answered = 0;
fetch = async (url, ...rest) => {
  const answer = await real(url, ...rest);
  await new Promise((go) => setTimeout(go, url.includes("after=0&") ? 1200 : 2400));
  setTimeout(() => { answered += 1; });
  return answer;
};
"""


def test_a_slow_search_counts_each_line_once(console: Console, host: RunningHost) -> None:
    """A line that arrives while a search is running is not counted again with its result."""
    for number in range(20):
        host.host.logger.info("counted", number=number)
    console.show("/log?q=counted+number%3D0")
    console.browser.execute_script(SLOW)
    console.find("#q").send_keys(Keys.BACKSPACE)
    console.wait.until(lambda browser: browser.execute_script("return answered >= 4"))
    assert console.text("[data-count]") == "20 lines"


def test_a_slow_or_failed_request_is_found_and_opened(console: Console, host: RunningHost) -> None:
    """Filters narrow the list at once; a click shows headers, timings and the request's log lines."""
    identity = "an-id-that-is-rather-long"
    httpx.get(f"{host.url()}/nothing/at/all", headers={"X-Request-ID": identity, "Cookie": "a=secret"})
    host.host.logger.warning("a line about it", request_id=identity)
    console.show("/requests")
    console.find("#status").send_keys("4xx")
    console.find("#order").send_keys("slowest")
    console.find("#q").send_keys(identity)
    console.wait.until(lambda browser: browser.find_element(By.CSS_SELECTOR, "[data-count]").text == "1 request")
    console.find("button.id").click()
    assert console.text("code.id.whole") == identity
    console.wait.until(lambda browser: identity in browser.current_url)
    console.show(f"/requests?q={identity}")
    console.find("tbody a").click()
    console.wait.until(lambda browser: "Timings" in browser.find_element(By.TAG_NAME, "main").text)
    shown = console.text("main")
    assert identity in shown
    assert "secret" not in shown
    assert "a line about it" in console.text(".log")
    assert complaints(console.browser) == []


def test_a_page_tells_that_it_is_old(browser: Chrome) -> None:
    """After the session ended in another tab, and while the host is away, the overview says so."""
    with running_host() as host:
        console = Console(browser, host)
        browser.execute_script(LEAVE)
        console.wait_for_text("[data-news]", "This session has ended.")
        assert not console.find(".state").is_displayed()
        console = Console(browser, host)
        console.wait.until(lambda browser: browser.execute_script("return stream?.readyState") == 1)
    console.wait_for_text("[data-news]", "The host does not respond.")
    assert not console.find(".state").is_displayed()
