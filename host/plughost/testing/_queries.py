"""Finding queries that Pony gets wrong: ternaries select the wrong rows, chained comparisons raise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_QUERIES: Final = frozenset(
    {"select", "get", "exists", "left_join", "delete", "count", "sum", "avg", "min", "max", "group_concat", "distinct"}
    | {"filter", "where", "order_by", "sort_by"}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A place in a source file.

    Attributes:
        line: Counted from 1.
        message: What is wrong there, and what to write instead.
    """

    line: int
    message: str


def query_faults(source: str) -> list[Fault]:
    """Return the ternaries and chained comparisons in Pony's queries from generators and lambdas.

    A test asserts that there are none: `assert query_faults(Path(module.__file__).read_text()) == []`. A module that
    doesn't import Pony has no faults.

    Raises:
        SyntaxError: The source is not valid Python.
    """
    tree = ast.parse(source)
    if not any(_imports_pony(node) for node in ast.walk(tree)):
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _function_name(node) in _QUERIES)
    queries = (each for call in calls for each in call.args if isinstance(each, (ast.GeneratorExp, ast.Lambda)))
    return [fault for query in queries for fault in _faults_in(query)]


def _faults_in(query: ast.AST) -> Iterator[Fault]:
    for node in ast.walk(query):
        if isinstance(node, ast.IfExp):
            yield Fault(node.lineno, "a ternary in a Pony query selects the wrong rows: decide outside of the query")
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            yield Fault(node.lineno, "Pony can't do a chained comparison: write `a <= x and x <= b`")


def _function_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _imports_pony(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] == "pony"
    return isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "pony" for alias in node.names)
