"""Rules of the code: what is public, what is private, and the direction of imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
HOST: Final = ROOT / "host" / "plughost"
PUBLIC: Final = frozenset(
    {"plughost", "plughost.http", "plughost.ratelimits", "plughost.stores", "plughost.testing"},
)


def _modules() -> dict[str, Path]:
    """Return the host's modules by dotted name."""
    found = {}
    for path in HOST.rglob("*.py"):
        parts = ("plughost", *path.relative_to(HOST).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _imports(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of ours that a file imports anywhere, also for types."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_private_modules_begin_with_an_underscore() -> None:
    """Every module of the host is one of the five public ones, or a part of its name begins with an underscore."""
    public_modules = {name for name in _modules() if not any(part.startswith("_") for part in name.split("."))}
    assert public_modules == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_public_module_has_a_valid_all(name: str) -> None:
    """Each name in its `__all__` exists."""
    code = f"import {name} as module; print([each for each in module.__all__ if not hasattr(module, each)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_our_plugins_import_only_public_modules() -> None:
    """No plugin and no example imports a private module of the host."""
    examples = [path for path in (ROOT / "examples").rglob("*.py") if "tests" not in path.parts]
    sources = [*(ROOT / "plugins").glob("*/src/**/*.py"), *(ROOT / "docs").rglob("*.py"), *examples]
    assert examples
    modules = _modules()
    inside = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources
        for name in _imports(path, modules)
        if name.partition(".")[0] == "plughost" and name not in PUBLIC
    }
    assert inside == set()


def test_imports_have_no_cycles() -> None:
    """This includes imports for types."""
    modules = _modules()
    graph = {name: {each for each in _imports(path, modules) if each in modules} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_file_is_long() -> None:
    """No module of the host, of a plugin or of their tests has more than 400 lines."""
    folders = [HOST, ROOT / "tests", *(ROOT / "plugins").glob("*/src"), *(ROOT / "plugins").glob("*/tests")]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources}
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}


HEAVY: Final = {"asyncio", "cryptography", "falcon", "granian", "limits", "logging", "msgspec", "packaging", "pony"} | {
    "pydantic",
    "rich",
    "structlog",
    "tomlkit",
    "waitress",
}


def _imported(code: str) -> set[str]:
    """Return the heavy libraries that a program imports."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return HEAVY & set(done.stderr.split())


def test_no_page_installs_our_names_from_an_index() -> None:
    """A stranger may own such a name there, so our packages come from a folder, or with hashes.

    Extras of an installed package are allowed: they install only packages of others.
    """
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("plugins/*/README.md"),
        *ROOT.glob("examples/*/*.md"),
    ]
    lines = [line for page in pages for line in re.findall(r"pip install [^`\n]+", page.read_text(encoding="utf-8"))]
    ours = [line for line in lines if re.search(r"(?<=[ \"'])plughost(-[a-z]+)*(?![\w\[-])", line)]
    assert ours
    assert [line for line in ours if "--no-index" not in line and "--require-hashes" not in line] == []


def test_importing_the_package_is_light() -> None:
    """`import plughost` and `plughost --version` import no slow library."""
    assert _imported("import plughost") == set()
    assert _imported("from plughost._cli import main\nmain(['--version'], standalone_mode=False)") == set()


def test_listing_plugins_is_light() -> None:
    """`plughost plugins` imports no cryptography, rate limits, structured logging or server, and its help less."""
    imported = _imported("from plughost._cli import main\nmain(['plugins'], standalone_mode=False)")
    assert imported <= {"asyncio", "falcon", "logging", "msgspec", "packaging", "pydantic", "rich"}
    helping = _imported("from plughost._cli import main\nmain(['plugins', '--help'], standalone_mode=False)")
    assert helping <= {"logging", "packaging", "pydantic", "rich"}
