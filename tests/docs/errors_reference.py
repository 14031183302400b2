"""Generates docs/errors.md from the code that raises errors; test_errors.py compares it.

The source is parsed, since importing it would raise few of them. Variable parts are shown as `<name>`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

import click
import falcon

from plughost._apps.application import _DEFAULT_DESCRIPTIONS
from plughost._cli import options
from plughost._plugins.environment import ENTRY_POINT_GROUP, InstalledPlugin
from plughost._plugins.failures import Failure, with_advice

ROOT: Final = Path(__file__).parents[2]
MAX_TEXTS: Final = 4
"""How many texts of one place in the code are listed. If there are more, they differ only in variable parts."""

COMMANDS: Final = {
    **dict.fromkeys(
        (
            "CommandError",
            "CertificateError",
            "ListenError",
            "NotRunning",
            "NotPermitted",
            "StoppedMeanwhile",
            "PipError",
        ),
        1,
    ),
    **dict.fromkeys(("KeyFileError", "LibraryError", "SetupError", "MigrationError"), 1),
    "SettingsError": options.EXIT_USAGE,
    "ClickException": click.ClickException.exit_code,
    "UsageError": click.UsageError.exit_code,
}
"""The errors that end a command, and their exit codes."""

WORDS: Final = {
    "<groups>": "two routes of the plugin that can't stand beside each other, and why",
    "<error>": "a hook of a name, or with an argument, that there is none of",
    "<error><ending>": "an import or a hook that did not return in time",
    "<failures>": "why its store can't be opened or migrated",
    "<violations>": "each wrong field or parameter, and what it must be",
    "<raised>": "an exception of the plugin's code, and where it was raised",
    "<problem>": "what is wrong with its entry point, or with the metadata of its distribution",
    "<problems>": "each wrong key of its table, and what it must be",
    "<reason>": "why the body is no JSON that can be read, and at which byte",
    "<unmet>": "a requirement of its distribution that is not installed, or in another version",
    "<where>: <error>": "a declaration that can't be used, and why",
    "<where>: <problem>": "a declaration that can't be used, and why",
}
"""Descriptions of texts that consist only of variable parts."""

_HEAD: Final = """# Errors

All error messages, generated from the code by `python tests/docs/update_references.py`. `<name>` stands for a variable
part. Operators find solutions in [Troubleshooting](operators/troubleshooting.md), API clients under
[Errors](api-clients/README.md#errors).
"""
_RESPONSES: Final = """
## Answers

The errors that services answer, by the package that makes them. The service's format writes them: problem details, text
or an envelope. A title that is not shown is the status's own. Any service answers these where nothing says more:
"""
_FAILURES: Final = """
## Plugins that do not serve

What `plughost plugins` and the console show of a failed or blocked plugin, by the stage at which it happened. A hook's
name is the stage of whatever happened in it; an exception of the plugin's own code is shown with its place.
"""
_EXITS: Final = """
## Commands

| exit code | meaning |
|---|---|
| 0 | All is well. |
"""


class Source(NamedTuple):
    """A file of the code.

    Attributes:
        package: Its distribution.
        name: Its path within the package.
        tree: Its syntax tree.
    """

    package: str
    name: str
    tree: ast.Module


def reference() -> str:
    """Return the page."""
    sources = _sources()
    parts = [_HEAD, _RESPONSES, "\n| status | title | detail |\n|---|---|---|\n"]
    parts.extend(f"| {status} | | {_code(text)} |\n" for status, text in sorted(_DEFAULT_DESCRIPTIONS.items()))
    parts.append(_by_package("Answers", sources, _responses(sources), ("status", "title", "detail")))
    parts.append(f"{_FAILURES}\n{_table(('stage', 'what happened', 'what to do'), _failures(sources))}")
    parts.append(_EXITS)
    parts.extend(f"| {getattr(options, name)} | {_described(name)} |\n" for name in ("EXIT_PROBLEMS", "EXIT_USAGE"))
    parts.append("\nWhat a command says before it ends so, on its standard error:\n")
    parts.append(_by_package("Messages", sources, _endings(sources), ("exit code", "message")))
    return "".join(parts)


class _Constants(ast.NodeTransformer):
    """Replaces constants by their values. Constants that differ between modules stay names."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        """Take the modules."""
        self._values: dict[str, set[str | int]] = {}
        for each in (each for tree in trees for each in tree.body if isinstance(each, ast.AnnAssign | ast.Assign)):
            name = _name(each.target if isinstance(each, ast.AnnAssign) else each.targets[0])
            if name.isupper() and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str | int):
                self._values.setdefault(name, set()).add(each.value.value)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the value if it is known."""
        known = self._values.get(node.id, set())
        return ast.Constant(next(iter(known))) if len(known) == 1 and isinstance(node.ctx, ast.Load) else node


def _sources() -> list[Source]:
    """Return the files of the host and of the plugins."""
    found = list(_files())
    constants = _Constants(source.tree for source in found)
    for source in found:
        constants.visit(source.tree)
    return found


def _files() -> Iterator[Source]:
    for folder in (ROOT / "host" / "plughost", *sorted((ROOT / "plugins").glob("*/src/*"))):
        for path in sorted(folder.rglob("*.py")):
            if "testing" not in path.relative_to(folder).parts[:1]:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                yield Source(folder.name.replace("_", "-"), str(path.relative_to(folder)), tree)


def _described(name: str) -> str:
    """Return the docstring of a constant of the options."""
    found = re.search(rf'^{name}: Final = \d+\n"""(.*?)"""', inspect.getsource(options), re.MULTILINE)
    assert found is not None, name
    return found[1]


def _by_package(
    what: str, sources: Iterable[Source], rows: Iterable[tuple[Source, tuple[str, ...]]], columns: tuple[str, ...]
) -> str:
    """Return a table for each package that has rows."""
    tables: dict[str, list[tuple[str, ...]]] = {source.package: [] for source in sources}
    for source, row in rows:
        tables[source.package].append(row)
    shown = {package: each for package, each in tables.items() if each}
    return "".join(f"\n### {what} of {package}\n\n{_table(columns, each)}" for package, each in shown.items())


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    shown = "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in sorted(set(rows)))
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n{shown}"


def _responses(sources: Iterable[Source]) -> Iterator[tuple[Source, tuple[str, ...]]]:
    """Yield status, title and detail of each error that the code creates."""
    given = list(sources)
    ours = _own_errors(given)
    for source in given:
        for function, call in _calls(source.tree):
            status = _status(call, ours, source.tree)
            title, detail = _argument(call, "title"), _argument(call, "description")
            if status is None or not (title or detail):
                continue
            titles = [_code(text) for text in _texts(title, function, source.tree)] or [""]
            for text in _texts(detail, function, source.tree) or [""]:
                yield source, (status, titles[0], _cell(text))


def _own_errors(sources: Iterable[Source]) -> dict[str, str]:
    """Return the status of each class that derives from one of Falcon's."""
    classes = [each for source in sources for each in ast.walk(source.tree) if isinstance(each, ast.ClassDef)]
    return {each.name: status for each in classes for base in each.bases if (status := _of_falcon(base)) is not None}


def _of_falcon(value: ast.expr) -> str | None:
    """Return the status of a Falcon error: empty if its first argument sets it, None if it is no such error."""
    named = re.fullmatch(r"falcon\.(HTTP\w+)", ast.unparse(value))
    made = getattr(falcon, named[1], None) if named else None
    if not (isinstance(made, type) and issubclass(made, falcon.HTTPError)):
        return None
    if made is falcon.HTTPError:
        return ""
    arguments = (1,) if made is falcon.HTTPRangeNotSatisfiable else ()
    return str(made(*arguments).status_code)


def _status(call: ast.Call, ours: dict[str, str], tree: ast.Module) -> str | None:
    """Return the status of the error that a call creates. None if it creates none."""
    status = _of_falcon(call.func) if not isinstance(call.func, ast.Name) else ours.get(call.func.id)
    if status is None and ast.unparse(call.func) == "super().__init__":
        scopes = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and call in ast.walk(each)]
        status = ours.get(scopes[-1].name) if scopes else None
    if status == "":
        return str(call.args[0].value) if call.args and isinstance(call.args[0], ast.Constant) else None
    return status


def _failures(sources: Iterable[Source]) -> Iterator[tuple[str, ...]]:
    """Yield stage, cause and advice of each failure that the host explains."""
    for source in sources:
        for function, call in _calls(source.tree):
            kind, given = _name(call.func), call.args
            if kind == "PluginError" and given:
                given = [ast.Constant("a hook"), *given]
            elif kind != "Failure" or len(given) < 2:
                continue
            stage = " ".join(_texts(given[0], function, source.tree))
            asked = _of_author(has_trace=len(given) > 3)
            named = {"a hook": stage, "<stage>": "any"}.get(stage, _code(stage))
            for scope, cause, advice in _resolved_arguments(function, source.tree, *(*given[1:], ast.Constant(""))[:2]):
                all_advice = [text or asked for text in _texts(advice, scope, source.tree)]
                causes = _texts(cause, scope, source.tree)
                if all(map(_varies, all_advice)):
                    causes = [text for text in causes if not _varies(text)]
                yield from ((named, _cell(text, named), " or ".join(map(_cell, all_advice))) for text in causes)


def _of_author(*, has_trace: bool) -> str:
    """Return the host's advice if only the author of an installed plugin can fix the failure."""
    point = EntryPoint("<name>", "<name>", ENTRY_POINT_GROUP)
    plugin = InstalledPlugin(name=point.name, distribution="", version="", entry_point=point)
    return with_advice(Failure("", "", trace="..." if has_trace else ""), plugin).advice


def _resolved_arguments(
    function: ast.AST, module: ast.Module, cause: ast.expr, advice: ast.expr
) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """Yield cause and advice. If they are the function's arguments, yield them for each call in the module."""
    names = [each.arg for each in function.args.args if each.arg != "self"] if _is_function(function) else []
    if _name(cause) not in names:
        yield function, cause, advice
        return
    for scope, call in _calls(module):
        if _name(call.func) == getattr(function, "name", ""):
            all_advice = call.args[names.index(_name(advice))] if _name(advice) in names else advice
            yield scope, call.args[names.index(_name(cause))], all_advice


def _is_function(scope: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(scope, ast.FunctionDef)


def _endings(sources: Iterable[Source]) -> Iterator[tuple[Source, tuple[str, ...]]]:
    """Yield exit code and message of each error that ends a command."""
    for source in sources:
        for function, call in _calls(source.tree):
            kind = _name(call.func)
            if kind in COMMANDS and call.args:
                first = call.args[0].elts[0] if isinstance(call.args[0], ast.List) else call.args[0]
                yield from (
                    (source, (str(COMMANDS[kind]), _code(text)))
                    for text in _texts(first, function, source.tree)
                    if not _varies(text)
                )


def _calls(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Yield each call with its innermost function, or the module."""
    scopes: dict[ast.Call, ast.AST] = {}
    for scope in ast.walk(tree):  # outer ones first
        if isinstance(scope, ast.Module | ast.FunctionDef):
            scopes |= {each: scope for each in ast.walk(scope) if isinstance(each, ast.Call)}
    for call, scope in scopes.items():
        yield scope, call


def _name(value: ast.expr) -> str:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def _texts(value: ast.expr | None, scope: ast.AST, module: ast.Module) -> list[str]:
    """Return the texts that an expression may have, from its function and the module's constants."""
    if isinstance(value, ast.IfExp):
        return [*_texts(value.body, scope, module), *_texts(value.orelse, scope, module)]
    if isinstance(value, ast.Name):
        for place in (scope, module):
            found = [text for each in _assigned(value.id, place) for text in _texts(each, scope, module)]
            if found and len(found) <= MAX_TEXTS:
                return found
    return [] if value is None else [" ".join(_shown(value).split())]


def _assigned(name: str, place: ast.AST) -> Iterator[ast.expr]:
    """Yield the values that a function or a module assigns to a name."""
    for each in place.body if isinstance(place, ast.Module) else ast.walk(place):
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
            target = each.target if isinstance(each, ast.AnnAssign) else each.targets[0]
            if _name(target) == name:
                yield each.value


def _shown(value: ast.expr) -> str:  # noqa: PLR0911 - one for each kind of expression
    """Return an expression as readers see it, with `<name>` for variable parts."""
    match value:
        case ast.Constant():
            return str(value.value)
        case ast.FormattedValue() | ast.Subscript() | ast.Starred():
            return _shown(value.value)
        case ast.JoinedStr():
            return "".join(_shown(each) for each in value.values)
        case ast.BinOp(op=ast.Add()):
            return _shown(value.left) + _shown(value.right)
        case ast.IfExp():
            return _shown(value.body)
        case ast.BoolOp():
            return _shown(value.values[0])
        case ast.GeneratorExp() | ast.ListComp():
            return _shown(value.elt if isinstance(value.elt, ast.JoinedStr | ast.IfExp) else value.generators[0].iter)
        case ast.Call():
            return _shown(_subject(value))
    name = _name(value).strip("_").lower().replace("_", " ")
    return f"<{name}>" if name else "<…>"


def _subject(call: ast.Call) -> ast.expr:
    """Return the text that a call transforms: the object of methods such as strip, else the first argument."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in {
        "strip",
        "rstrip",
        "removeprefix",
        "split",
        "errors",
    }:
        return call.func.value
    return call.args[0] if call.args else call.func


def _varies(text: str) -> bool:
    """Return whether a text consists only of variable parts."""
    return not re.sub(r"<[^<>]*>", "", text).strip(" .:;,")


def _cell(text: str, stage: str = "") -> str:
    """Return a table cell: the text as code, or its description if it consists only of variable parts."""
    return WORDS.get(f"{stage} {text}") or WORDS[text] if text and _varies(text) else _code(text)


def _code(text: str) -> str:
    """Return a text as code in a table."""
    text = text.replace("|", "\\|")
    return "" if not text else f"`` {text} ``" if "`" in text else f"`{text}`"
