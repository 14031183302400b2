"""`plughost new` writes a complete plugin, and overwrites nothing."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner, Result

from plughost._cli import main
from plughost_scaffold.writing import FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

BIN: Final = Path(sys.executable).parent
CASES: Final = ["all", *(pytest.param(name, marks=pytest.mark.thorough) for name in FEATURES)]


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> None:
    """Run a command that must succeed."""
    environment = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def new(folder: Path, *arguments: str) -> Result:
    """Call `plughost new` for a folder."""
    return CliRunner().invoke(main, ["new", "--into", str(folder), *arguments])


@pytest.mark.parametrize("feature", CASES)
def test_a_new_plugin_passes_its_tests_lint_and_types(feature: str, tmp_path: Path) -> None:
    """This holds for all features, on both databases, with the longest possible name."""
    name = f"{feature}-of-a-name-as-long-as-may-be"[:29] + "x"
    assert new(tmp_path, name, f"--{feature}").exit_code == 0
    (project,) = tmp_path.iterdir()
    run([BIN / "ruff", "check"], project)
    run([BIN / "ruff", "format", "--check"], project)
    run([BIN / "mypy"], project)
    installed = tmp_path / "installed"
    target: list[str | Path] = ["--python", sys.executable, "--no-deps", "--target", installed]
    run([BIN / "uv", "pip", "install", "--quiet", *target, project], project)
    run([sys.executable, "-m", "pytest", "-q"], project, PYTHONPATH=str(installed))


def test_a_person_at_a_terminal_is_asked(tmp_path: Path) -> None:
    """Each feature is a question; the plugin has those that were answered with yes."""
    mine, theirs = os.openpty()
    command: list[str | Path] = [BIN / "plughost", "new", "asked"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    os.close(theirs)
    os.write(mine, "".join("y\n" if name in {"store", "page"} else "n\n" for name in FEATURES).encode())
    assert process.wait(60) == 0
    os.close(mine)
    package = tmp_path / "plughost-asked" / "src" / "plughost_asked"
    assert {each.name for each in package.glob("*.py")} == {"__init__.py", "plugin.py", "store.py"}
    assert "def register_pages" in (package / "plugin.py").read_text()


def test_without_a_terminal_the_plugin_has_a_route(tmp_path: Path) -> None:
    """A script without options gets the smallest plugin that answers requests."""
    assert new(tmp_path, "quiet").exit_code == 0
    assert (tmp_path / "plughost-quiet" / "src" / "plughost_quiet" / "resources.py").is_file()


@pytest.mark.parametrize("file", ["hello.py", "some/plugins/hello.py"])
def test_a_single_file_works_with_the_printed_setting(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line for plughost.toml is right in the folder of the command."""
    monkeypatch.chdir(tmp_path)
    output = CliRunner().invoke(main, ["new", "--file", file]).output
    setting = re.search(r"plugins_dir = \S+", output)
    assert setting is not None, output
    Path("plughost.toml").write_text(setting[0])
    assert "curl http://localhost:8080/hello/Ada" in output
    assert "/hello/{who}" in CliRunner().invoke(main, ["routes", "--dev"]).output


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """An existing file is named and kept."""
    new(tmp_path, "twice")
    (tmp_path / "plughost-twice" / "README.md").write_text("mine")
    answer = new(tmp_path, "twice", "--all")
    assert answer.exit_code == 1
    assert "already exists" in answer.output
    assert (tmp_path / "plughost-twice" / "README.md").read_text() == "mine"


def test_a_full_disk_is_reported_with_the_folder(tmp_path: Path) -> None:
    """The message doesn't say that nothing was written: some files are there."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        answer = new(tmp_path, "large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.exit_code == 1
    assert "Not all files could be written to " in answer.output
    assert "plughost-large: File too large." in answer.output.replace("\n", "")


@pytest.mark.parametrize("name", ["Notes", "my_notes", "serve", "scaffold", "x" * 31, "-", "1st"])
def test_an_invalid_name_is_refused(name: str, tmp_path: Path) -> None:
    """Nothing is written; the error names the rule or the command of the same name."""
    answer = new(tmp_path, "--", name)
    assert answer.exit_code == 2
    assert list(tmp_path.iterdir()) == []
