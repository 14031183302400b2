"""Browsing stores."""

from __future__ import annotations

import sqlite3
from contextlib import closing
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


def test_a_page_beyond_the_end_leads_back(console: Console) -> None:
    """Its link goes to the last page with rows, even if that is the only one."""
    console.show("/stores/catalog/products?page=999999999")
    console.find("a[rel=prev]").click()
    console.wait.until(lambda browser: "page 2 of 2" in browser.find_element(By.TAG_NAME, "main").text)
    console.show("/stores/catalog/products?q=TEA-59&page=7")
    console.find("a[rel=prev]").click()
    console.wait.until(lambda browser: "1 row with" in browser.find_element(By.TAG_NAME, "main").text)


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
    console.wait_for_text("main", "61 rows where stock is “1”")
    console.find("#q").send_keys("TEA-7", Keys.ENTER)
    console.wait_for_text("section[aria-label='The row']", "TEA-7")


def test_a_row_links_to_related_rows(console: Console, host: RunningHost) -> None:
    """If another table of the store has the same column, its rows with the value are linked."""
    with host.client("library", "https") as client:
        assert client.get("/mylibrary/setup/login", auth=("user@example.org", "user")).status_code == 200
    console.show("/stores/library-auth/library_logins?column=account&value=user@example.org")
    console.wait_for_text("section[aria-label='The row']", "the same in library_users")
    console.find("section[aria-label='The row'] small a").click()
    console.wait_for_text("h1", "library_users")
    console.wait_for_text("main", "where account is “user@example.org”")


def test_a_huge_value_is_shown_in_part(console: Console, host: RunningHost) -> None:
    """A row's page shows the beginning of 20,000,000 characters, and says how many are left out."""
    with closing(sqlite3.connect(host.host.settings.data_dir / "stores" / "catalog.sqlite3")) as rows, rows:
        rows.execute("INSERT INTO products (sku, name, price, stock) VALUES ('HUGE', ?, 1, 1)", ("y" * 20_000_000,))
    try:
        console.show("/stores/catalog/products?column=sku&value=HUGE")
        console.wait_for_text("section[aria-label='The row']", "… and 19,900,000 characters more")
        assert len(console.browser.page_source) < 200_000
        assert console.overflow() <= 0
    finally:
        with host.client() as client:
            assert client.delete("/api/v3/products/HUGE").status_code == 204
