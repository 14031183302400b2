"""Build the documentation's site: `python build_site.py FOLDER`, with what `requirements.txt` names installed.

Pages are written so that they read well in the repository, where links name files. Sphinx gets a copy in which every
page lies where the site has it and every link leads there. What links to other files of the repository stays as text.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]

_LINK: Final = re.compile(r"(?<=\]\()([^)#\s]+)([^)\s]*)(?=\))")
_PICTURE: Final = re.compile(r"^!\[(.*)\]\((.*)-light\.webp\)$", re.MULTILINE)
_NOWHERE: Final = "no-part-of-the-site"
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)

_MENDED: Final = {
    ' style="opacity: 50%"': ' opacity="50%"',
    ' style="display: none;"': ' display="none"',
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper ': '<div tabindex="0" class="table-wrapper ',
}
"""What of the theme a strict policy refuses, or a screen reader stumbles over."""

NAVIGATION: Final = {
    "Start": ["tour", "how-it-works", "api-clients/index", "operators/index", "plugin-authors/index"],
    "Operators": [
        *("operators/install", "operators/serving", "operators/containers", "operators/settings"),
        *("operators/tls", "certificates/index"),
        *("operators/stores", "operators/clients", "operators/console", "operators/monitoring", "operators/security"),
        *("operators/upgrade", "operators/rollback", "operators/restart", "operators/removal", "operators/bundle"),
        *("operators/troubleshooting", "operators/cli"),
    ],
    "Plugin authors": [
        *("plugin-authors/tutorial", "plugin-authors/developing", "plugin-authors/concepts"),
        *("plugin-authors/declarations", "plugin-authors/hooks", "plugin-authors/resources", "plugin-authors/stores"),
        *("plugin-authors/jobs", "plugin-authors/event-streams", "plugin-authors/files", "plugin-authors/idempotency"),
        *("plugin-authors/metrics", "plugin-authors/testing", "plugin-authors/conventions", "plugin-authors/assistant"),
        *("plugin-authors/coming-from", "plugin-authors/not-there", "plugin-authors/promise"),
        "plugin-authors/reference",
    ],
    "API clients": ["api-clients/library", "api-clients/catalog", "api-clients/messages", "api-clients/profile"],
    "Plugins": [],
    "More": [
        "comparison",
        "performance",
        "errors",
        "faq",
        "glossary",
        "architecture",
        "benchmark/index",
        "changelog",
        "contributing",
        "security",
    ],
}
"""The order of the sidebar. A page that isn't here comes last in the part that is named as its folder, or in More."""


def build(folder: Path) -> None:
    """Build the site; what was there is replaced once the new one is complete.

    Args:
        folder: Where to.

    Raises:
        subprocess.CalledProcessError: Sphinx found something wrong, a warning too.
    """
    with tempfile.TemporaryDirectory() as place:
        source, made = Path(place, "source"), Path(place, "html")
        _stage(source)
        command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--builder", "html"]
        command += ["--conf-dir", str(HERE / "sphinx"), str(source), str(made)]
        subprocess.run(command, check=True)  # noqa: S603 - Sphinx, on our own sources  # nosec B603
        _tidy(made)
        (made / "versions.json").write_text(json.dumps([{"name": _version(), "url": "./"}]) + "\n", encoding="utf-8")
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = HERE / f".html-{os.getpid()}"
        shutil.copytree(made, new)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(new, folder)


def _version() -> str:
    """Return the version that the pages are of."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup["metadata"]["version"]


def _tidy(made: Path) -> None:
    """Remove what only Sphinx wants, and move scripts and styles out of the pages, which a strict policy asks for."""
    for left in (".doctrees", "_sources"):
        shutil.rmtree(made / left, ignore_errors=True)
    for left in (".buildinfo", "objects.inv", "_static/debug.css"):
        (made / left).unlink(missing_ok=True)
    moved: dict[str, set[str]] = {"script": set(), "style": set()}
    for page in made.rglob("*.html"):
        up = "../" * (len(page.relative_to(made).parts) - 1)
        text = page.read_text(encoding="utf-8")
        for kind, there in (
            ("script", f'<script src="{up}_static/page.js"></script>'),
            ("style", f'<link rel="stylesheet" href="{up}_static/page.css">'),
        ):
            inline = re.compile(f"<{kind}>(.*?)</{kind}>", re.DOTALL)
            moved[kind].update(inline.findall(text))
            text = inline.sub(there, text)
        for old, new in _MENDED.items():
            text = text.replace(old, new)
        assert " style=" not in re.sub(r"<code.*?</code>|<pre.*?</pre>", "", text, flags=re.DOTALL), page
        page.write_text(text, encoding="utf-8")
    for kind, name in (("script", "page.js"), ("style", "page.css")):
        (made / "_static" / name).write_text("\n".join(sorted(moved[kind])), encoding="utf-8")


def _stage(source: Path) -> None:
    """Copy the pages to where the site has them, and what they show."""
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("*.md", "*.py", "__pycache__"))
    kept = ("docs/**/*.md", "plugins/*/README.md", "examples/**/README.md", "certs/README.md", "bench/README.md")
    pages = [page for each in (*kept, "C*.md", "SECURITY.md", "llms.txt", "LICENSE") for page in ROOT.glob(each)]
    places = {page: _place(page.relative_to(ROOT)) for page in pages}
    navigation = _navigation(sorted(str(each.with_suffix("")) for each in places.values() if each.suffix == ".md"))
    for page, place in places.items():
        text = page.read_text(encoding="utf-8")
        parts = _FENCE.split(text)
        text = "".join(part if part.startswith("```") else _linked(part, page, places) for part in parts)
        text += navigation.get(str(place.with_suffix("")), "")
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        (source / place).write_text(text, encoding="utf-8")


def _place(page: Path) -> PurePosixPath:
    """Return where the site has a page."""
    parts = [*page.parts]
    if parts[0] == "docs":
        parts = parts[1:]
    elif len(parts) == 1:
        parts[0] = parts[0].lower()
    parts[0] = {"certs": "certificates", "bench": "benchmark"}.get(parts[0], parts[0])
    return PurePosixPath(*parts[:-1], "index.md" if parts[-1] == "README.md" else parts[-1])


def _linked(text: str, page: Path, places: dict[Path, PurePosixPath]) -> str:
    """Return a text with the links that the site's page has."""
    here = places[page].parent

    def led(link: re.Match[str]) -> str:
        target, rest = link[1], link[2]
        if re.match(r"[a-z]+:", target):
            return link[0]
        file = Path(os.path.normpath(page.parent / target))
        file = file / "README.md" if file.is_dir() else file
        place = places.get(ROOT / "docs" / "README.md" if file == ROOT / "README.md" else file)
        if place is None and file.is_relative_to(ROOT / "docs") and file.suffix != ".py":
            place = PurePosixPath(file.relative_to(ROOT / "docs"))
        if place is None:
            return _NOWHERE
        return os.path.relpath(place, here) + rest

    text = re.sub(rf"\[([^\[\]]*)\]\({_NOWHERE}\)", r"\1", _LINK.sub(led, text))
    return _PICTURE.sub(_in_both_themes, text)


def _in_both_themes(picture: re.Match[str]) -> str:
    """Return what shows one picture in light, and the one beside it in dark."""
    shown = "```{{image}} {1}-{0}.webp\n:alt: {2}\n:class: only-{0}\n```\n"
    return "\n".join(shown.format(theme, picture[2], picture[1]) for theme in ("light", "dark"))


def _navigation(names: list[str]) -> dict[str, str]:
    """Return what makes the sidebar: every page, by its name, in one of the parts.

    A part that has a page of its own unfolds below that page's name; the others have a caption on the front page.
    """
    known = {"index", *(name for listed in NAVIGATION.values() for name in listed)}
    parts = {caption: [*listed] for caption, listed in NAVIGATION.items()}
    for name in names:
        if name not in known:
            caption = name.partition("/")[0].replace("-", " ").capitalize()
            parts[caption if caption in parts else "More"].append(name)
    made = {"index": ""}
    for caption, listed in parts.items():
        own = f"{caption.lower().replace(' ', '-')}/index"
        head, page = ([], own) if own in known else ([f":caption: {caption}"], "index")
        entries = [_entry(name) for name in listed]
        made[page] = made.get(page, "") + "\n".join(["", "```{toctree}", ":hidden:", *head, "", *entries, "```", ""])
    return made


def _entry(name: str) -> str:
    """Return a line of a part: a page that has a part of its own is named as that."""
    named = {f"{caption.lower().replace(' ', '-')}/index": caption for caption in NAVIGATION}
    return f"{named[name]} </{name}>" if name in named else f"/{name}"


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
