"""The documentation's references match the code: settings, commands, hooks, declarations, names and messages.

If one is outdated, the failing assertion shows its new content; `python tests/docs/update_references.py` updates
settings, commands, names and errors.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, SecretStr

import plughost
import plughost.http
import plughost.stores
import plughost.testing
from plughost._api import declarations, hookspecs
from plughost._api.context import PluginContext
from plughost._cli import main
from plughost._logging import silent_logger
from plughost._runtime.host import Host
from plughost._settings.models import HostSettings, MountSettings
from plughost._settings.sources import RESTART_ONLY, read_settings

DOCS: Final = Path(__file__).parents[2] / "docs"


def _page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def _region(page: str, start: str) -> str:
    """Return the part of a page between a comment and the next `end`."""
    found = re.search(rf"^<!-- {re.escape(start)} -->\n(.*?)^<!-- end -->", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page needs <!-- {start} --> and <!-- end -->"
    return found[1]


def _settings_models() -> dict[str, type[BaseModel]]:
    """Return the settings models of the installed plugins, by plugin."""
    generation = Host(read_settings(None, {}), logger=silent_logger()).dry_run(rehearsed=True)
    generation.close()
    return {entry.name: type(entry.settings) for entry in generation.registry if entry.settings is not None}


def test_every_setting_of_the_host_is_in_the_reference() -> None:
    """The settings reference has the key, the default and the description of each setting."""
    assert _region(_page("operators/settings.md"), "settings") == _table(HostSettings)


def test_the_pages_list_the_settings_that_need_a_restart() -> None:
    """Both pages warn operators that a reload does not apply these settings."""
    *most, last = (f"`{key}`" for key in RESTART_ONLY)
    named = f"{', '.join(most)} and {last} are read at start only"
    for page in ("operators/settings.md", "operators/serving.md"):
        assert named in " ".join(_page(page).split())


def test_every_plugins_common_settings_are_in_the_reference() -> None:
    """It lists the keys that every plugin's table may have."""
    assert _region(_page("operators/settings.md"), "settings of every plugin") == _table(MountSettings)


def test_every_setting_of_the_plugins_is_in_the_reference() -> None:
    """Each installed plugin with settings has a complete table."""
    page = _page("operators/settings.md")
    for name, model in _settings_models().items():
        assert _region(page, f"settings of {name}") == _table(model)


def _table(model: type[BaseModel]) -> str:
    rows = [f"| `{key}` | {default} | {text} |".replace("|  |", "| |") for key, default, text in _merged(_rows(model))]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _merged(rows: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return the rows, with equal settings of both sites merged."""
    given = list(rows)
    sites = ("sites.main.", "sites.library.")
    merged: dict[tuple[str, str, str], None] = {}
    for key, default, text in given:
        twins = [f"{site}{key.removeprefix(each)}" for each in sites if key.startswith(each) for site in sites]
        same = bool(twins) and all((twin, default, text) in given for twin in twins)
        merged[f"sites.<site>.{key.split('.', 2)[2]}" if same else key, default, text] = None
    return list(merged)


def _rows(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, str, str]]:
    for name, info in model.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _rows(inner, f"{above}{name}.")
        else:
            # `plughost init` and `plughost settings --json` show only this text.
            described = info.description
            assert described, f"{model.__module__}: {name} has no description"
            yield f"{above}{name}", _shown(info.get_default(call_default_factory=True)), described


def _attributes(described: type) -> dict[str, str]:
    """Return the attributes in a Google docstring."""
    _, _, text = (inspect.getdoc(described) or "").partition("Attributes:\n")
    entries = re.findall(r"^(\w+): (.*(?:\n +.*)*)", textwrap.dedent(text), re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in entries}


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = list(value)
    return f"`{json.dumps(value if isinstance(value, (bool, int, float, list, dict)) else str(value))}`"


def test_every_command_is_in_the_reference() -> None:
    """The reference of commands shows exactly each command's help, and no other command."""
    shown = dict(
        re.findall(r"^<!-- help: ([^\n]*) -->\n```text\n(.*?)```", _page("operators/cli.md"), re.MULTILINE | re.DOTALL)
    )
    assert shown == {" ".join(path): _help(path) for path in _commands(main, ("plughost",))}


def _commands(command: click.Command | None, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), (*path, name))


def _help(path: tuple[str, ...]) -> str:
    run = CliRunner().invoke(main, [*path[1:], "--help"], prog_name=path[0], terminal_width=80)
    return run.output.rstrip() + "\n"


def _hooks() -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(hookspecs))
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(each, ast.Name) and each.id == "hookspec" for each in node.decorator_list)
    }


def test_every_hook_is_documented_with_its_arguments() -> None:
    """The reference of hooks has a heading and the exact signature for each hook, and no other hook."""
    page = _page("plugin-authors/hooks.md")
    signatures = {name: f"def {name}({ast.unparse(node.args)}) -> {_unparsed(node)}" for name, node in _hooks().items()}
    assert (
        dict(re.findall(r"^## `(\w+)`\n\n<!-- signature -->\n```python\n(.*)\n```", page, re.MULTILINE)) == signatures
    )


def _unparsed(node: ast.FunctionDef) -> str:
    assert node.returns is not None
    return ast.unparse(node.returns)


@pytest.mark.parametrize(
    "described",
    [
        *(getattr(declarations, name) for name in plughost.__all__ if hasattr(declarations, name)),
        plughost.Job,
        PluginContext,
    ],
    ids=lambda each: each.__name__,
)
def test_every_declaration_is_documented_with_its_fields(described: Any) -> None:
    """The reference has a section for each declaration, with a row for each public attribute and its default."""
    page = _page("plugin-authors/declarations.md")
    found = re.search(rf"^## {described.__name__}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {described.__name__}"
    shown = [(name, default.strip()) for name, default in re.findall(r"^\| `(\w+)` \|(.*?)\|", found[1], re.MULTILINE)]
    names = list(_attributes(described))
    assert [name for name, _ in shown] == names
    given = {} if described is PluginContext else {each.name: each for each in dataclasses.fields(described)}
    defaults = {name: _default(field) for name, field in given.items()}
    assert dict(shown) == {name: defaults.get(name, "") for name in names}


def _default(field: dataclasses.Field[Any]) -> str:
    """Return a field's default in Python syntax, or an empty string."""
    if field.name == "errors":
        return "`PROBLEM_DETAILS`"
    if field.default_factory is not dataclasses.MISSING:
        made = field.default_factory()
        return f"`{json.dumps(dict(made))}`"
    if field.default is dataclasses.MISSING:
        return ""
    return f"`{field.default!r}`".replace("'", '"')


@pytest.mark.parametrize(
    "package",
    [plughost, plughost.http, plughost.stores, plughost.testing],
    ids=lambda package: package.__name__,
)
def test_every_public_name_is_mentioned(package: Any) -> None:
    """The documentation for plugin authors contains every name that they may import."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "plugin-authors").glob("*.md"))
    missing = {name for name in package.__all__ if not re.search(rf"\b{name}\b", text)}
    assert missing == set()


def test_every_name_in_a_table_of_a_package_can_be_imported() -> None:
    """The tables list only public names of their package."""
    unknown = []
    for path in sorted((DOCS / "plugin-authors").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for package, rows in re.findall(r"^\| name in `([\w.]+)` \|.*\n((?:\|.*\n?)+)", text, re.MULTILINE):
            public = importlib.import_module(package).__all__
            cells = [row.split("|")[1] for row in rows.splitlines()[1:]]
            named = [name for cell in cells for name in re.findall(r"`([A-Za-z_]\w*)", cell)]
            assert named, f"{path.name}: the table of {package} names nothing"
            unknown += [f"{path.name}: {package}.{name}" for name in named if name not in public]
    assert unknown == []


def test_the_troubleshooting_page_quotes_real_messages() -> None:
    """Every quoted message occurs in the code, except for its placeholders."""
    host = Path(plughost.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in host.rglob("*.py"))
    code = re.sub(r'"\n\s+f?"', "", re.sub(r"\{[^{}]*\}", "<>", code))
    rows = re.findall(r"^\|(.*)\|.*\|$", _page("operators/troubleshooting.md"), re.MULTILINE)
    quoted = [text for row in rows for text in re.findall(r"`([^`]*)`", row) if " " in text]
    assert quoted
    unknown = [text for text in quoted if not _stands_in(code, text)]
    assert unknown == [], unknown


def _stands_in(code: str, message: str) -> bool:
    parts = [part.strip(" ,;:") for part in re.split(r"<[^<>]*>|ModuleNotFoundError.*", message)]
    return all(part in code for part in parts if len(part) > 3)


@pytest.mark.parametrize("name", ["pyproject.toml", "src/plughost_greeting/plugin.py", "tests/test_greeting.py"])
def test_the_first_page_for_plugin_authors_shows_the_example(name: str) -> None:
    """It shows a part of each file of the example; test_pages.py compares the parts."""
    assert f"<!-- example: {name} -->" in _page("plugin-authors/README.md")


def test_the_pictures_match_their_texts() -> None:
    """Each picture is what `python docs/pictures/draw.py` draws from its text, and names existing modules."""
    spec = importlib.util.spec_from_file_location("draw", DOCS / "pictures" / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    sys.modules["draw"] = drawing  # dataclasses look up their module
    spec.loader.exec_module(drawing)
    texts = sorted((DOCS / "pictures").glob("*.txt"))
    assert texts
    host = Path(plughost.__file__).parent
    for text in texts:
        title, steps = drawing.read(text.read_text(encoding="utf-8"))
        assert text.with_suffix(".svg").read_text(encoding="utf-8") == drawing.draw(title, steps)
        assert max(len(step.where) for step in steps) <= 28, "its text would overlap the next column"
        places = [step.where for step in steps if step.where.startswith("_")]
        assert [place for place in places if not (host / f"{place}.py").is_file()] == []


def test_the_architecture_page_has_a_line_for_each_package() -> None:
    """It lists every folder of the host, and no other."""
    page = _page("architecture.md")
    host = Path(plughost.__file__).parent
    folders = {path.parent.name for path in host.glob("*/__init__.py")}
    listed = set(re.findall(r"^\| `(?:plughost\.)?(\w+)/?` \| ", page, re.MULTILINE)) - {"plughost"}
    assert listed == folders


def test_the_reference_of_names_matches_the_docstrings() -> None:
    """It contains each public name with its arguments and its docstring."""
    spec = importlib.util.spec_from_file_location("api_reference", Path(__file__).parent / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert _page("plugin-authors/reference.md") == made.reference()


def test_the_pages_for_assistants_exist() -> None:
    """Each link of llms.txt leads to a page."""
    links = re.findall(r"\]\(([^)]+)\)", (DOCS.parent / "llms.txt").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (DOCS.parent / link).is_file()] == []
