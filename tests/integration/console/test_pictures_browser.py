"""The pictures in the README and the pages show the present state.

`PLUGHOST_TEST_PICTURES=FOLDER` takes them and saves them there; the pages use `docs/pictures`.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rich.console import Console as Printer
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium.webdriver.common.by import By

from plughost.testing import RunningHost, running_host

from .kit import Console, with_browser
from .pictures import keep_or_compare

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = with_browser

WIDTH: Final = 1280
PORTS: Final = {"library": ("9998", "4443"), "main": ("8080", "8443")}
"""The ports that the pages speak of: HTTP and HTTPS of each site."""

TERMINAL: Final = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #0d1117; color: #e6edf3 }}
pre {{ margin: 0; padding: 24px 28px; font: 15px/1.5 ui-monospace, "DejaVu Sans Mono", monospace }}
</style>{code}"""


@pytest.fixture(scope="module")
def host() -> Iterator[RunningHost]:
    """A host with every plugin, after a few requests."""
    with running_host() as running:
        with running.client() as client:
            for number, name in enumerate(("Green tea, 250 g", "Earl Grey, 100 g", "Rooibos, 500 g")):
                body = {"sku": f"TEA-{number}", "name": name, "price": 4.95, "stock": 120}
                for path in ("/api/v2/products", "/api/v3/products"):
                    assert client.post(path, json=body).status_code == 201
            for path in (
                "/api/v2/products",
                "/api/v3/products/TEA-1",
                "/products?size=2",
                "/messages",
                "/users/profile",
            ):
                for _ in range(5):
                    assert client.get(path).status_code == 200
        yield running


def take(browser: Chrome, name: str, height: int, theme: str = "light", width: int = WIDTH) -> None:
    """Take a picture of the page's upper part, to save it or to compare it with the saved one."""
    wanted = {"width": width, "height": height, "deviceScaleFactor": 1.5, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wanted)
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.execute_script("document.documentElement.style.scrollbarWidth = 'none'")
    # Wait until the page is drawn.
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(() => arguments[0]()))")
    told = {"format": "webp", "quality": 80}
    keep_or_compare(browser, name, browser.execute_cdp_cmd("Page.captureScreenshot", told)["data"])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_picture_of_the_overview(console: Console) -> None:
    """The console's overview, in light and in dark, shows vital signs and services."""
    console.show("")
    text = console.find("main").text
    assert "catalog-v2" in text
    for theme in ("light", "dark"):
        take(console.browser, f"console-{theme}.webp", 860, theme)


def test_a_picture_of_the_requests(console: Console) -> None:
    """The requests page shows a row for each request."""
    console.show("/requests")
    console.wait.until(lambda browser: "/users/profile" in browser.find_element(By.TAG_NAME, "main").text)
    take(console.browser, "requests.webp", 860)


def test_a_picture_of_swagger_ui(browser: Chrome, host: RunningHost, console: Console) -> None:
    """Swagger UI lists the operations."""
    browser.get(f"{host.url()}/q/swagger-ui")
    console.find(".opblock")
    take(browser, "swagger-ui.webp", 860)


def test_a_picture_of_a_start(browser: Chrome, tmp_path: Path) -> None:
    """A terminal shows how a host starts, with the ports that the pages name."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PLUGHOST_", "NO_COLOR"))}
    environment |= {
        f"PLUGHOST_SITES__{site}__{scheme}_PORT".upper(): "0" for site in PORTS for scheme in ("http", "https")
    }
    program = shutil.which("plughost", path=str(Path(sys.executable).parent)) or "plughost"
    ours, side = os.openpty()
    termios.tcsetwinsize(side, (50, 200))
    with (tmp_path / "log").open("wb") as log, os.fdopen(ours, encoding="utf-8") as shown:
        process = subprocess.Popen(
            [program, "serve", "--dev"],
            cwd=tmp_path,
            env=environment | {"TERM": "xterm-256color"},
            stdin=subprocess.DEVNULL,
            stdout=side,
            stderr=log,
        )
        os.close(side)
        text = ""
        with suppress(OSError):  # a terminal ends with this error
            text = "".join(takewhile(lambda line: "Press Ctrl+C" not in line, shown))
        process.terminate()
        process.wait(120)
    assert "Console: " in text, (tmp_path / "log").read_text()
    plain = Text.from_ansi(text).plain
    for site, http, https in re.findall(r"^ +(\w+) +http://\S+:(\d+) +https://\S+:(\d+)", plain, re.MULTILINE):
        text = text.replace(f":{http}", f":{PORTS[site][0]}").replace(f":{https}", f":{PORTS[site][1]}")
    text = re.sub(r"link=[\w.-]+", "link=…", text).replace(f"{tmp_path}/", "")
    printer = Printer(record=True, width=104, file=io.StringIO(), force_terminal=True)
    printer.print(Text.from_ansi(f"$ ./dev serve\n{text}".rstrip()))
    code = printer.export_html(theme=MONOKAI, inline_styles=True, code_format="<pre>{code}</pre>")
    page = tmp_path / "terminal.html"
    page.write_text(TERMINAL.format(code=code), encoding="utf-8")
    browser.get(page.as_uri())
    height = browser.execute_script("return Math.ceil(document.querySelector('pre').getBoundingClientRect().height)")
    take(browser, "terminal.webp", height, width=880)
