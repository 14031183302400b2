"""Report how hard the pages are to read, hardest first: `python tests/docs/readability.py`. It fails nothing.

LIX is the mean length of sentences plus the share of words of more than six letters: below 40 is easy, above 50 hard.
Code, tables, headings and what is generated are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import textstat

ROOT: Final = Path(__file__).parents[2]
GENERATED: Final = {"CHANGELOG.md", "docs/errors.md", "docs/plugin-authors/reference.md", "docs/operators/cli.md"}
SHOWN: Final = 8
HARD: Final = 50


def prose(text: str) -> str:
    """Return the prose of a page, with each list item as a sentence."""
    text = re.sub(r"^```.*?^```|^#.*?$|^\|.*?$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    paragraphs = re.split(r"\n\s*\n|\n(?=- |\d+\. )", re.sub(r"`[^`]*`", "code", text))
    ended = (each.strip().rstrip(":;,") for each in paragraphs if len(each.split()) > 3)
    return "\n".join(each if each.endswith((".", "?", "!")) else f"{each}." for each in ended)


def main() -> None:
    """Print the hardest pages, and how many are hard."""
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("plugins/*/README.md"),
    ]
    found = []
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        text = prose(page.read_text(encoding="utf-8"))
        if name not in GENERATED and text:
            found.append((textstat.lix(text), textstat.words_per_sentence(text), name))
    found.sort(reverse=True)
    hard = sum(lix > HARD for lix, _, _ in found)
    print(f"{hard} of {len(found)} pages are hard to read (LIX above {HARD}); the hardest:")
    for lix, words, name in found[:SHOWN]:
        print(f"  LIX {lix:4.1f}, {words:4.1f} words a sentence  {name}")


if __name__ == "__main__":
    main()
