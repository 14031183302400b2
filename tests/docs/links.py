"""Ask for every external link of the pages: `python tests/docs/links.py [PAGE...]`.

A link is broken where its server says that there is nothing; exit code 1 then. A server that is out of reach or keeps
programs out says nothing about the link: such links are listed, and fail nothing.
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
"""Where our packages will be, from the first release on."""
SECONDS: Final = 15
AT_ONCE: Final = 8
GONE: Final = {404, 410}


def links(text: str) -> set[str]:
    """Return where the links of a page lead outside, without fragments; what is in code is an example."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"(?:\]\(|<)(https?://(?!localhost)[^)>\s#]+)", text))


def ask(link: str) -> tuple[bool | None, str]:
    """Return whether a link leads somewhere, and what its server said; None where that can't be told."""
    request = Request(link, headers={"User-Agent": "Mozilla/5.0 (plughost's check of links)"})
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            return True, str(answer.status)
    except HTTPError as error:
        return (False if error.code in GONE else None), f"{error.code} {error.reason}"
    except (OSError, HTTPException, ValueError) as error:
        return None, str(error) or type(error).__name__


def main(names: Sequence[str]) -> int:
    """Print what isn't well, and return the exit code."""
    pages = [Path(name) for name in names] or sorted({page for each in PAGES for page in ROOT.glob(each)})
    found: dict[str, list[str]] = {}
    for page in pages:
        for link in links(page.read_text(encoding="utf-8")):
            found.setdefault(link, []).append(str(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page))
    asked = sorted(link for link in found if not link.startswith(UNPUBLISHED))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        told = dict(zip(asked, threads.map(ask, asked), strict=True))
    for link, (well, why) in told.items():
        if not well:
            print(f"{'unknown' if well is None else 'BROKEN'}: {link}: {why} (in {', '.join(found[link])})")
    number = {kind: sum(well is kind for well, _ in told.values()) for kind in (True, False, None)}
    print(f"{len(asked)} links: {number[True]} well, {number[False]} broken, {number[None]} unknown.", end=" ")
    print(f"{len(found) - len(asked)} to our own packages, unpublished as yet, were left out.")
    if number[None] and number[None] == len(asked):
        print("No server could be asked: is there a network here?")
    return 1 if number[False] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
