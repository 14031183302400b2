"""Draw the pictures of the documentation: `python docs/pictures/draw.py` makes an SVG of each text file beside it.

A text file holds a title in its first line, then one line for each step:

    where | what happens there

A line that begins with `>` is written beside the arrow that leads to the next step.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent

_WIDTH: Final = 760
_LEFT: Final = 20
_WHERE: Final = 240
_LINE: Final = 19
_GAP: Final = 30
_STYLE: Final = """
    text { font: 14px system-ui, sans-serif; fill: #1f2328 }
    .title { font-size: 18px; font-weight: 600 }
    .where { font-family: ui-monospace, monospace; font-size: 13px; font-weight: 600 }
    .note { font-size: 13px; font-style: italic; fill: #59636e }
    rect { fill: #f6f8fa; stroke: #59636e }
    rect.page { fill: #ffffff; stroke: none }
    path { stroke: #59636e; fill: none }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .note { fill: #9198a1 }
      rect { fill: #151b23; stroke: #9198a1 }
      rect.page { fill: #0d1117 }
      path { stroke: #9198a1 }
    }
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One box of a picture.

    Attributes:
        where: The module, or who acts.
        what: What happens there, in lines.
        note: What is written beside the arrow to the next box.
    """

    where: str
    what: tuple[str, ...]
    note: str

    @property
    def height(self) -> int:
        """Height of the box in pixels."""
        return _LINE * len(self.what) + 16


def read(text: str) -> tuple[str, list[Step]]:
    """Return the title and the steps that a text describes."""
    title, *lines = text.strip().splitlines()
    steps: list[Step] = []
    for line in filter(None, (each.strip() for each in lines)):
        if line.startswith(">"):
            last = steps.pop()
            steps.append(Step(last.where, last.what, line[1:].strip()))
        else:
            where, _, what = line.partition("|")
            steps.append(Step(where.strip(), tuple(textwrap.wrap(what.strip(), 62)), ""))
    return title, steps


def draw(title: str, steps: list[Step]) -> str:
    """Return the picture as SVG, legible on light and on dark pages."""
    parts = [f'<text class="title" x="{_LEFT}" y="32">{escape(title)}</text>']
    y = 52
    for number, step in enumerate(steps):
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH - 2 * _LEFT}" height="{step.height}" rx="6"/>')
        parts.append(f'<text class="where" x="{_LEFT + 14}" y="{y + 22}">{escape(step.where)}</text>')
        for line, words in enumerate(step.what):
            parts.append(f'<text x="{_LEFT + _WHERE}" y="{y + 22 + line * _LINE}">{escape(words)}</text>')
        y += step.height
        if number + 1 < len(steps):
            middle = _LEFT + 40
            parts.append(f'<path d="M{middle} {y} v{_GAP - 2} m-5 -8 l5 8 l5 -8"/>')
            if step.note:
                parts.append(f'<text class="note" x="{middle + 18}" y="{y + 20}">{escape(step.note)}</text>')
            y += _GAP
    body = "\n  ".join(parts)
    size = f'width="{_WIDTH}" height="{y + 20}" viewBox="0 0 {_WIDTH} {y + 20}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n  <title>{escape(title)}</title>'
    page = '<rect class="page" width="100%" height="100%" rx="6"/>'
    return f"{head}\n  <style>{_STYLE}  </style>\n  {page}\n  {body}\n</svg>\n"


def main() -> None:
    """Draw every text file of this folder."""
    for source in sorted(FOLDER.glob("*.txt")):
        source.with_suffix(".svg").write_text(draw(*read(source.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
