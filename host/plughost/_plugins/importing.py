"""Importing: which loaded modules import which others, by the statements in their sources."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from plughost._plugins.snapshots import Snapshot


def importers(imported: Mapping[str, Snapshot], keys: Collection[str], *, beside: Collection[str]) -> frozenset[str]:
    """Return some distributions, and all others whose modules import theirs, directly or not.

    What a distribution requires says which ones it may import, and authors forget to say it.

    Args:
        imported: What this process has imported.
        keys: Normalised names of the distributions to begin with.
        beside: Distributions to leave out: what no reload can replace.
    """
    reached = set(keys)
    modules = [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
    owners = {
        key: [(name, module) for name, module in modules if each.owns(module)]
        for key, each in imported.items()
        if key not in beside
    }
    grown = bool(reached)
    while grown:
        names = {name for key in reached for name, _ in owners.get(key, ())}
        more = {key for key in owners.keys() - reached if any(_imports(module, names) for _, module in owners[key])}
        reached |= more
        grown = bool(more)
    return frozenset(reached)


def _imports(module: ModuleType, names: Collection[str]) -> bool:
    if any(isinstance(each, ModuleType) and each.__name__ in names for each in list(vars(module).values())):
        return True
    tops = {name.partition(".")[0].encode() for name in names}
    try:
        source = Path(module.__file__ or "").read_bytes()
        if not any(top in source for top in tops):  # most don't, and to parse them all takes its time
            return False
        return any(name in names for name in _imported(ast.parse(source), module))
    except (OSError, SyntaxError, ValueError):
        return False


def _imported(tree: ast.AST, module: ModuleType) -> Iterator[str]:
    """Yield the names that a module's statements may import, wherever they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = (module.__package__ or "").split(".")
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
