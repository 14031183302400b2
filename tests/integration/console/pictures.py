"""Compare a page with its picture by texts, positions and colours, since fonts differ between machines.

Beside each picture, a JSON file has what is compared and the picture's hash, so that neither is renewed without the
other.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

KEPT: Final = Path(__file__).parents[3] / "docs" / "pictures"
RENEW: Final = (
    "PLUGHOST_TEST_PICTURES=$PWD/docs/pictures ./dev test -e browser -- "
    "tests/integration/console/test_pictures_browser.py takes the pictures again"
)
TOLERANCE: Final = 0.1
"""How far a thing may be from its place, as a share of the picture's width and height."""

WRAPPED: Final = {"label"}
"""What stands in lines that break elsewhere with wider letters, so that its place says nothing."""

_OUTLINE: Final = """
const named = "h1, h2, h3, th, dt, nav a, button:not(td *), summary, label, pre, .opblock-tag, .opblock-summary-path";
const plain = (text) => text.replace(/\\s+/g, " ").replace(/\\d+([.,:]\\d+)*/g, "0").trim();
const parts = [];
for (const each of document.querySelectorAll(named)) {
    const { left, top, width, height } = each.getBoundingClientRect();
    const text = plain(each.innerText);
    if (text && width && height && top >= 0 && top < innerHeight)
        parts.push([each.localName, text, left / innerWidth, top / innerHeight]);
}
const { color, backgroundColor } = getComputedStyle(document.body);
return { colours: [color, backgroundColor], parts };
"""


def keep_or_compare(browser: Chrome, name: str, picture: str) -> None:
    """Keep a picture and what the page shows where `PLUGHOST_TEST_PICTURES` says, else compare with what is kept.

    Args:
        browser: It shows the page, as in the picture.
        name: The picture's.
        picture: Its bytes, in Base64.
    """
    shown = browser.execute_script(_OUTLINE)
    shown["parts"] = [[tag, text, round(x, 3), round(y, 3)] for tag, text, x, y in shown["parts"]]
    assert shown["parts"], "the page shows something"
    if folder := os.environ.get("PLUGHOST_TEST_PICTURES"):
        data = base64.b64decode(picture)
        Path(folder, name).write_bytes(data)
        kept = {"picture": hashlib.sha256(data).hexdigest(), **shown}
        Path(folder, name).with_suffix(".json").write_text(_written(kept), encoding="utf-8")
        return
    kept = json.loads((KEPT / name).with_suffix(".json").read_text(encoding="utf-8"))
    hashed = hashlib.sha256((KEPT / name).read_bytes()).hexdigest()
    assert kept["picture"] == hashed, f"{name} isn't the picture that {Path(name).stem}.json is of: {RENEW}"
    assert differences(kept, shown) == [], f"the page looks otherwise than in docs/pictures/{name}: {RENEW}"


def _written(kept: dict[str, Any]) -> str:
    """Return JSON with one line for each part."""
    head = json.dumps({key: value for key, value in kept.items() if key != "parts"}, ensure_ascii=False)
    parts = ",\n".join(json.dumps(part, ensure_ascii=False) for part in kept["parts"])
    return f'{head[:-1]}, "parts": [\n{parts}\n]}}\n'


def differences(kept: dict[str, Any], shown: dict[str, Any]) -> list[str]:
    """Return how a page differs; parts at the lower edge may be in only one of the two."""
    told = [] if kept["colours"] == shown["colours"] else [f"colours {shown['colours']} for {kept['colours']}"]
    for here, there, verb in ((kept, shown, "is gone"), (shown, kept, "is new")):
        left = [tuple(part) for part in there["parts"]]
        for tag, text, x, y in here["parts"]:
            same = [part for part in left if part[:2] == (tag, text)]
            near = [part for part in same if tag in WRAPPED or max(abs(part[2] - x), abs(part[3] - y)) <= TOLERANCE]
            if near:
                left.remove(near[0])
            elif y < 1 - TOLERANCE:
                told.append(f"{tag} {text!r} {f'is elsewhere: {same[0][2:]} and {(x, y)}' if same else verb}")
    return told
