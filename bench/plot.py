"""Draws SVG pictures that can be read on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 760
_STYLE: Final = """<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 } .page { fill: #ffffff }
.bar, .point { fill: #7d8590 } .ours { fill: #1a7f37 } .line { stroke: #1a7f37; fill: none; stroke-width: 1.5 }
.axis { stroke: #7d8590 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117 } .ours { fill: #3fb950 } .line { stroke: #3fb950 } }
</style>"""


def bars(title: str, groups: Mapping[str, Mapping[str, float]], ours: str) -> str:
    """Return horizontal bars in groups; within each, the longest takes the whole width.

    Args:
        title: What is shown.
        groups: For each group, the length of each bar.
        ours: The bar that stands out.
    """
    parts, y = [_text(12, 22, title, "title")], 34
    for name, group in groups.items():
        y += 22
        parts.append(_text(12, y, name, "title"))
        longest = max(group.values())
        for label, value in group.items():
            y += 17
            length = max(value / longest * (WIDTH - 380), 1)
            kind = "ours" if label == ours else "bar"
            parts.append(_text(296, y, label, anchor="end"))
            parts.append(f'<rect class="{kind}" x="302" y="{y - 10}" width="{length:.1f}" height="12"/>')
            parts.append(_text(round(308 + length), y, f"{value:,.0f}"))
        y += 6
    return _picture(y + 14, parts)


def line(title: str, values: Sequence[float], across: str, unit: str) -> str:
    """Return a line over equal steps; its axis begins at 0."""
    height, left, bottom = 260, 64, 220
    top = max(values) * 1.15
    step = (WIDTH - left - 24) / max(len(values) - 1, 1)
    points = " ".join(f"{left + i * step:.1f},{bottom - v / top * 180:.1f}" for i, v in enumerate(values))
    parts = [
        _text(12, 22, title, "title"),
        f'<path class="axis" d="M{left} 40V{bottom}H{WIDTH - 24}" fill="none"/>',
        f'<polyline class="line" points="{points}"/>',
        _text(WIDTH - 24, bottom + 30, across, anchor="end"),
        *_marks(top, left, bottom, unit),
    ]
    return _picture(height, parts)


def _marks(top: float, left: int, bottom: int, unit: str) -> Iterator[str]:
    for number in range(4):
        value = top / 4 * number
        yield _text(left - 6, round(bottom - value / top * 180) + 4, f"{value:,.0f} {unit}", anchor="end")


def _text(x: int, y: int, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _picture(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    page = f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>'
    return "\n".join([head, _STYLE, page, *parts, "</svg>\n"])
