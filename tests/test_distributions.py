"""The metadata of this checkout's distributions, on which pip and the host depend."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PLUGINS: Final = sorted(folder.parent for folder in ROOT.glob("plugins/*/setup.cfg"))
FOLDERS: Final = [ROOT, *PLUGINS]

EXAMPLES: Final = sorted(folder.parent for folder in ROOT.glob("examples/*/setup.cfg"))

each_plugin = pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
each_distribution = pytest.mark.parametrize(
    "folder", FOLDERS, ids=lambda folder: folder.name if folder != ROOT else "host"
)


def _read(path: Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    config.read(path, encoding="utf-8")
    return config


def _package(folder: Path) -> Path:
    return (
        ROOT / "host" / "plughost" if folder == ROOT else folder / "src" / f"plughost_{folder.name.replace('-', '_')}"
    )


@each_plugin
def test_a_plugin_is_named_after_its_folder(folder: Path) -> None:
    """The folder has the plugin's name; distribution, package and entry point are named after it."""
    config = _read(folder / "setup.cfg")
    assert config["metadata"]["name"] == f"plughost-{folder.name}"
    if config.has_section("options.entry_points"):
        entry = config["options.entry_points"]["plughost.plugins"].strip()
        assert re.fullmatch(rf"{folder.name} = {_package(folder).name}\.plugin(:\w+)?", entry)
        assert (_package(folder) / "plugin.py").is_file()


@each_plugin
def test_a_plugin_requires_a_compatible_host(folder: Path) -> None:
    """So pip refuses to install a plugin for another major version of the host."""
    requirements = _read(folder / "setup.cfg")["options"]["install_requires"]
    assert re.search(r"^plughost >= [\d.]+, < 1$", requirements, re.MULTILINE)


@pytest.mark.parametrize("folder", [*PLUGINS, *EXAMPLES], ids=lambda folder: folder.name)
def test_every_plugin_runs_the_conformance_suite(folder: Path) -> None:
    """A plugin with an entry point has a test file with the suite of its name."""
    if _read(folder / "setup.cfg").has_section("options.entry_points"):
        made = (folder / "tests" / "test_conformance.py").read_text(encoding="utf-8")
        assert f'\nTestConformance = conformance("{folder.name}"' in made


@each_distribution
def test_every_distribution_has_the_same_licence_and_python(folder: Path) -> None:
    """The host and every plugin have the same licence and Python versions."""
    config = _read(folder / "setup.cfg")
    assert config["metadata"]["license"] == "Apache-2.0"
    assert config["options"]["python_requires"] == ">=3.11"
    assert (folder / "README.md").is_file()
    assert 'requires = ["setuptools >= 77"]' in (folder / "pyproject.toml").read_text(encoding="utf-8")


@each_distribution
def test_a_packages_data_files_are_in_its_wheel(folder: Path) -> None:
    """`package_data` covers every file that is no module, so an installed package has it."""
    package = _package(folder)
    patterns = _read(folder / "setup.cfg")["options.package_data"][package.name].split()
    covered = {path for pattern in patterns for path in package.glob(pattern)}
    data = {path for path in package.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert package / "py.typed" in data
    assert data <= covered


def test_tox_has_an_environment_for_every_plugin() -> None:
    """A plugin without its own environment would never be tested alone."""
    tox = _read(ROOT / "tox.ini")
    names = {folder.name for folder in PLUGINS}
    listed = re.sub(
        r"catalog-\{(.*)\}",
        lambda m: "\n".join(f"catalog-{v.strip()}" for v in m[1].split(",")),
        tox["tox"]["env_list"],
    )
    assert names <= set(listed.split())
    assert set(re.findall(r"-e plugins/(\S+)", tox["common"]["plugins"])) == names


def test_the_examples_use_only_public_names() -> None:
    """No example uses a module or name of the host that begins with an underscore."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")}
    assert len(sources) > 4
    assert [path for path, text in sources.items() if re.search(r"\bplughost[\w.]*(\.| import .*\b)_", text)] == []


def test_tox_environments_have_a_default_path() -> None:
    """So `./dev test -e NAME -- FILE` runs only that file."""
    text = (ROOT / "tox.ini").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [shlex.split(given) for given in re.findall(r"\{\[common\]pytest\} (.*) \{posargs\}", text)]
    assert len(commands) > 4
    for words in commands:
        assert words[:1] == ["-o"], words
        assert words[1].startswith("testpaths="), words
        assert all(word.startswith("--ignore") for word in words[2:]), words


def test_dev_reinstalls_after_a_change_of_any_requirement() -> None:
    """Its fingerprint has the constraints, and the `setup.cfg` of the host, of every plugin and of every example."""
    function = (ROOT / "dev").read_text(encoding="utf-8").partition("\nfingerprint() (\n")[2].partition("\n)\n")[0]
    patterns = re.findall(r"\$\(cat (.*) \| cksum\)", function)[0].split()
    seen = {file for pattern in patterns for file in ROOT.glob(pattern)}
    assert EXAMPLES
    assert {ROOT / "tests" / "constraints.txt", *(folder / "setup.cfg" for folder in (*FOLDERS, *EXAMPLES))} <= seen
