"""The tables of audit events in the documentation are those that the code writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from plughost_packages.planning import Change

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("docs/operators/security.md", "plugins/library-auth/README.md")
WRITERS: Final = {"audit", "audited", "recording", "record"}
CHANGES: Final = {
    Change(distribution="x", before=before, after=after).verb
    for before, after in ((None, "1"), ("1", "2"), ("1", None))
}


def _documented() -> dict[str, set[str]]:
    """Return the outcomes of each event, as the tables have them."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        table = (ROOT / page).read_text(encoding="utf-8").partition("\n| `what` | `outcome` |")[2].partition("\n\n")[0]
        for row in table.splitlines()[2:]:
            events, outcomes, _ = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:4])
            for event in events:
                found.setdefault(event, set()).update(outcomes)
    return found


def _written() -> Iterator[tuple[str, set[str]]]:
    """Yield each event of the code with those of its outcomes that the code has as a literal."""
    for source in (path for folder in ("host", "plugins") for path in (ROOT / folder).rglob("*.py")):
        if {"tests", "build"} & set(source.parts) or source.match("*/_runtime/audit.py"):
            continue
        module = ast.parse(source.read_text(encoding="utf-8"))
        functions = [each for each in ast.walk(module) if isinstance(each, ast.FunctionDef)]
        for function in functions:
            for call in (each for each in ast.walk(function) if isinstance(each, ast.Call)):
                if not isinstance(call.func, ast.Attribute) or call.func.attr not in WRITERS or not call.args:
                    continue
                outcomes = _literals(call.args[1], function, module) if len(call.args) > 1 else {"ok", "failed"}
                outcomes |= {value for each in _set_outcomes(function) for value in _literals(each, function, module)}
                for event in _literals(call.args[0], function, module):
                    yield event, outcomes


def _literals(value: ast.expr, function: ast.FunctionDef, module: ast.Module) -> set[str]:
    """Return the texts that an expression may be, as far as the module alone tells."""
    if isinstance(value, ast.Constant):
        return {value.value} if isinstance(value.value, str) else set()
    if isinstance(value, ast.IfExp):
        return _literals(value.body, function, module) | _literals(value.orelse, function, module)
    if not isinstance(value, ast.Name):
        return set()
    names = [each.arg for each in function.args.args if each.arg != "self"]
    if value.id in names:
        calls = [each for each in ast.walk(module) if isinstance(each, ast.Call)]
        named = [each for each in calls if getattr(each.func, "attr", getattr(each.func, "id", "")) == function.name]
        given = [each.args[names.index(value.id)] for each in named if len(each.args) > names.index(value.id)]
    else:
        assigned = [each for each in ast.walk(function) if isinstance(each, ast.Assign)]
        given = [each.value for each in assigned for target in each.targets if getattr(target, "id", "") == value.id]
    return {text for each in given for text in _literals(each, function, module)}


def _set_outcomes(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for each in ast.walk(function):
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Subscript):
            key = each.targets[0].slice
            if isinstance(key, ast.Constant) and key.value == "outcome":
                yield each.value


def test_every_event_of_the_code_is_in_a_table_and_every_one_of_a_table_in_the_code() -> None:
    """With each outcome that the code names."""
    documented, written = _documented(), list(_written())
    assert {event for event, _ in written} | CHANGES == documented.keys()
    assert [(event, outcomes) for event, outcomes in written if not outcomes <= documented[event]] == []
