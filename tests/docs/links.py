"""Check every external link of the pages: `python tests/docs/links.py [PAGE...]`.

A link is broken if its server responds with 404 or 410; the exit code is 1 then. Links to servers that are unreachable
or refuse programs are listed as unknown, and don't change the exit code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    *("*.md", "llms.txt", "docs/**/*.md", "certs/README.md", "bench/README.md"),
    *("plugins/*/README.md", "examples/**/README.md"),
)
UNPUBLISHED: Final = "https://pypi.org/project/plughost"
"""The address of our packages after the first release."""
TIMEOUT_SECONDS: Final = 15
THREADS: Final = 8
BROKEN_STATUSES: Final = {404, 410}


def links(text: str) -> set[str]:
    """Return the external links of a page, without fragments. Links in code are examples, and are left out."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"(?:\]\(|<)(https?://(?!localhost)[^)>\s#]+)", text))


def check(link: str) -> tuple[bool | None, str]:
    """Return whether a link works, or None if that is unknown, and the server's response."""
    request = Request(link, headers={"User-Agent": "Mozilla/5.0 (plughost's check of links)"})
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return True, str(answer.status)
    except HTTPError as error:
        return (False if error.code in BROKEN_STATUSES else None), f"{error.code} {error.reason}"
    except (OSError, HTTPException, ValueError) as error:
        return None, str(error) or type(error).__name__


def main(names: Sequence[str]) -> int:
    """Print broken and unknown links, and return the exit code."""
    pages = [Path(name) for name in names] or sorted({page for each in PAGES for page in ROOT.glob(each)})
    found: dict[str, list[str]] = {}
    for page in pages:
        for link in links(page.read_text(encoding="utf-8")):
            found.setdefault(link, []).append(str(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page))
    checked = sorted(link for link in found if not link.startswith(UNPUBLISHED))
    with ThreadPoolExecutor(THREADS) as threads:
        results = dict(zip(checked, threads.map(check, checked), strict=True))
    for link, (works, why) in results.items():
        if not works:
            print(f"{'unknown' if works is None else 'BROKEN'}: {link}: {why} (in {', '.join(found[link])})")
    number = {kind: sum(works is kind for works, _ in results.values()) for kind in (True, False, None)}
    print(f"{len(checked)} links: {number[True]} well, {number[False]} broken, {number[None]} unknown.", end=" ")
    print(f"{len(found) - len(checked)} to our own packages, unpublished as yet, were left out.")
    if number[None] and number[None] == len(checked):
        print("No server could be checked: is there a network here?")
    return 1 if number[False] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
