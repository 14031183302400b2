"""Write the files of a plugin from templates."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import jinja2
from packaging.version import Version

FEATURES: Final = {
    "route": "answers requests",
    "store": "keeps data, on SQLite and on PostgreSQL",
    "settings": "has a table in plughost.toml",
    "check": "has a health check",
    "page": "has a page in the development console",
    "command": "has a command: plughost NAME",
    "job": "has a scheduled job",
}
"""The features that a plugin can have, each with a phrase that describes it."""

_ALWAYS: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "ci/test.yml": ".github/workflows/test.yml",
    "src/__init__.py": "src/{package}/__init__.py",
    "src/plugin.py": "src/{package}/plugin.py",
    "src/py.typed": "src/{package}/py.typed",
    "tests/test_conformance.py": "tests/test_conformance.py",
    "tests/test_plugin.py": "tests/test_{module}.py",
}
_BY_FEATURE: Final = {
    "route": {"src/resources.py": "src/{package}/resources.py"},
    "store": {
        "src/store.py": "src/{package}/store.py",
        "migrations/sqlite.sql": "src/{package}/migrations/sqlite/0001_items.sql",
        "migrations/postgresql.sql": "src/{package}/migrations/postgresql/0001_items.sql",
    },
    "settings": {"src/settings.py": "src/{package}/settings.py"},
    "command": {"src/commands.py": "src/{package}/commands.py"},
    "job": {"src/jobs.py": "src/{package}/jobs.py"},
}


@dataclass(frozen=True, slots=True)
class Scaffold:
    """A plugin to write.

    Attributes:
        name: The plugin's name.
        features: Its features, keys of `FEATURES`.
    """

    name: str
    features: Collection[str]

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the content of each file."""
        templates = dict(_ALWAYS)
        for feature in self.features:
            templates |= _BY_FEATURE.get(feature, {})
        module = self.name.replace("-", "_")
        for template, path in sorted(templates.items()):
            yield path.format(package=f"plughost_{module}", module=module), self._render(template)

    def single_file(self) -> str:
        """Return the source of a single-file plugin."""
        return self._render("single.py")

    def _render(self, template: str) -> str:
        host = Version(version("plughost"))
        return _TEMPLATES.get_template(f"{template}.jinja").render(
            name=self.name,
            module=self.name.replace("-", "_"),
            package=f"plughost_{self.name.replace('-', '_')}",
            host=host.public,
            next_major=host.major + 1,
            **{feature: feature in self.features for feature in FEATURES},
        )


def write(files: Collection[tuple[str, str]], folder: Path) -> None:
    """Write files into a folder, which is created if needed.

    Raises:
        FileExistsError: One of the files exists already. Nothing was written.
    """
    present = [path for path, _ in files if (folder / path).exists()]
    if present:
        raise FileExistsError(f"{folder / present[0]} already exists")
    for path, content in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")


_TEMPLATES: Final = jinja2.Environment(  # nosec B701 - the templates make Python and TOML, not HTML
    loader=jinja2.PackageLoader("plughost_scaffold"),
    autoescape=False,  # noqa: S701 - as above
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
