"""Browsing stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from .kit import Console, with_browser

if TYPE_CHECKING:
    from plughost.testing import RunningHost

pytestmark = with_browser


def test_rows_are_paged(console: Console) -> None:
    """The second page shows the remaining rows."""
    console.show("/stores/catalog/products")
    console.find("a[rel=next]").click()
    console.wait.until(lambda browser: "page 2 of 2" in browser.find_element(By.TAG_NAME, "main").text)
    assert "TEA-59" in console.text("table")


def test_rows_are_sorted_and_followed(console: Console) -> None:
    """A column's head sorts; a value leads to the rows that have it; a row's page shows all of it."""
    console.show("/stores/catalog/products")
    head = "//thead//a[starts-with(normalize-space(), 'sku')]"
    for way in ("ascending", "descending"):
        console.browser.find_element(By.XPATH, head).click()
        console.find(f"th[aria-sort={way}]")
    console.find("tbody tr td a[title='Rows with this sku']").click()
    console.wait.until(lambda browser: browser.find_elements(By.CSS_SELECTOR, "section[aria-label='The row']"))
    assert "TEA-9" in console.text("section[aria-label='The row']")


def test_rows_are_filtered_by_a_column(console: Console) -> None:
    """A form selects a column and its value, and a further search keeps both."""
    console.show("/stores/catalog/products")
    Select(console.find("#column")).select_by_visible_text("stock")
    console.find("#value").send_keys("1", Keys.ENTER)
    console.until("main", "61 rows where stock is “1”")
    console.find("#q").send_keys("TEA-7", Keys.ENTER)
    console.until("section[aria-label='The row']", "TEA-7")


def test_a_row_links_to_related_rows(console: Console, host: RunningHost) -> None:
    """If another table of the store has the same column, its rows with the value are linked."""
    with host.client("library", "https") as client:
        assert client.get("/mylibrary/setup/login", auth=("user@example.org", "user")).status_code == 200
    console.show("/stores/library-auth/library_logins?column=account&value=user@example.org")
    console.until("section[aria-label='The row']", "the same in library_users")
    console.find("section[aria-label='The row'] small a").click()
    console.until("h1", "library_users")
    console.until("main", "where account is “user@example.org”")
