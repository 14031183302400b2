"""Updates the references of settings, commands, names and errors to what the tests expect.

New plugins and commands get their own section. People write the text around the tables. All plugins of the checkout
must be installed.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def _references() -> Any:
    """Import test_reference.py, which knows the expected contents of the pages."""
    return _module("test_reference")


def _module(name: str) -> Any:
    """Import a file of this folder."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_settings(page: str, references: Any) -> str:
    """Return the settings page with tables that are generated from the models."""
    models = references._settings_models()
    wanted = {"settings": references.HostSettings, "settings of every plugin": references.MountSettings}
    wanted |= {f"settings of {name}": model for name, model in models.items()}
    for name in models:
        if f"<!-- settings of {name} -->" not in page:
            page += f"\n## Of {name}\n\n<!-- settings of {name} -->\n<!-- end -->\n"
    for start, model in wanted.items():
        filled = f"<!-- {start} -->\n{references._table(model)}<!-- end -->"
        page = re.sub(rf"<!-- {start} -->\n.*?<!-- end -->", lambda _, new=filled: new, page, flags=re.DOTALL)  # type: ignore[misc] # mypy can't type a lambda's default
    return page


def with_commands(page: str, references: Any) -> str:
    """Return the command page with a section for each command, in order. Existing text is preserved."""
    head, *sections = re.split(r"(?m)^(?=###? plughost)", page)
    texts = {}
    for section in sections:
        title, _, rest = section.partition("\n")
        texts[title.lstrip("# ")] = rest.partition("<!-- help:")[0].strip()
    for path in references._commands(references.main, ("plughost",)):
        name = " ".join(path)
        text = f"{texts[name]}\n\n" if texts.get(name) else ""
        shown = f"<!-- help: {name} -->\n```text\n{references._help(path)}```\n"
        head += f"{'##' if len(path) < 3 else '###'} {name}\n\n{text}{shown}\n"
    return f"{head.rstrip()}\n"


def main() -> None:
    """Rewrite the pages in place."""
    references = _references()
    made = HERE.parents[1] / "docs" / "plugin-authors" / "reference.md"
    made.write_text(_module("api_reference").reference(), encoding="utf-8")
    errors = HERE.parents[1] / "docs" / "errors.md"
    errors.write_text(_module("errors_reference").reference(), encoding="utf-8")
    for name, change in (("settings.md", with_settings), ("cli.md", with_commands)):
        page = HERE.parents[1] / "docs" / "operators" / name
        page.write_text(change(page.read_text(encoding="utf-8"), references), encoding="utf-8")


if __name__ == "__main__":
    main()
