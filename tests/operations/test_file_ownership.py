"""`plughost install` and `uninstall`: a file belongs to one distribution."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from .test_install import write_project
from .wheels import build_wheel, speaker_wheel

if TYPE_CHECKING:
    from .environments import Sandbox


def test_a_file_of_another_distribution_is_not_overwritten(sandbox: Sandbox) -> None:
    """Both a wheel and a source are refused before: pip would overwrite it, and remove it with either distribution."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", files={"common/words.py": "WORD = 1"}))
    before = sandbox.files()
    speaker_wheel(sandbox.wheels, "other", "1.0", "other", files={"common/words.py": "WORD = 2"})
    output = sandbox.run("install", "other", code=1)
    assert "plughost-other 1.0 would overwrite" in output
    assert "common/words.py" in output
    assert "plughost-greeter" in output
    source = sandbox.folder / "source"
    write_project(source, sandbox.wheels / "plughost_other-1.0-py3-none-any.whl")
    assert "would overwrite" in sandbox.run("install", source, "--yes", code=1)
    assert sandbox.files() == before


@pytest.mark.parametrize("place", ["entry point", "scripts"])
def test_a_script_of_another_distribution_is_not_overwritten(sandbox: Sandbox, place: str) -> None:
    """Neither by a script that pip generates nor by one in the wheel, both of which are outside of its packages."""
    for name in ("one", "two"):
        points = f"[plughost.plugins]\n{name} = {name}\n"
        files = {f"{name}.py": ""}
        if place == "entry point" or name == "one":
            points += f"[console_scripts]\ntool = {name}:main\n"
        else:
            files["plughost_two-1.0.data/scripts/tool"] = "#!python\n"
        build_wheel(sandbox.wheels, f"plughost-{name}", "1.0", files, entry_points=points)
    sandbox.run("install", "one")
    assert "/bin/tool, a file of plughost-one" in sandbox.run("install", "two", code=1)


@pytest.mark.parametrize("place", ["data/pyvenv.cfg", "data/etc/own", "scripts/activate", "entry point"])
def test_a_file_of_the_environment_is_not_overwritten(sandbox: Sandbox, place: str) -> None:
    """Such as its interpreter: nothing could run any more after it is uninstalled, or its installation undone."""
    etc = sandbox.site.parents[2] / "etc"
    etc.mkdir()
    (etc / "own").write_text("the operator's own")
    wheel = partial(build_wheel, sandbox.wheels, "plughost-other", "1.0")
    if place == "entry point":
        wheel({"other.py": ""}, entry_points="[console_scripts]\npython = other:main\n")
    else:
        wheel({f"plughost_other-1.0.data/{place}": "content"})
    assert "a file of the environment" in sandbox.run("install", "other", code=1)
    assert "packages" in sandbox.run("plugins")


def test_a_script_outside_of_its_folder_is_refused(sandbox: Sandbox) -> None:
    """Pip would follow the path in its name, and overwrite any file that the operator can write."""
    points = "[console_scripts]\n../../here/plughost.toml = other:main\n"
    build_wheel(sandbox.wheels, "plughost-other", "1.0", {"other.py": ""}, entry_points=points)
    before = (sandbox.folder / "plughost.toml").read_text()
    assert "the script '../../here/plughost.toml'" in sandbox.run("install", "other", code=1)
    assert (sandbox.folder / "plughost.toml").read_text() == before


def test_a_file_that_several_distributions_have_stays_with_the_last(sandbox: Sandbox) -> None:
    """Such as an empty `tests/__init__.py`: uninstalling one, or undoing its installation, leaves it to the others."""
    shared = {"common/__init__.py": ""}
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", files=shared))
    before = sandbox.files()
    speaker_wheel(sandbox.wheels, "other", "1.0", "other", files=shared)
    sandbox.run("install", "other")
    sandbox.run("uninstall", "other", "--yes")
    assert sandbox.files() == before
    speaker_wheel(
        sandbox.wheels, "other", "2.0", "other", files={**shared, "z/data": "SPOIL" * 500}, requires=["plughost-helper"]
    )
    build_wheel(sandbox.wheels, "plughost-helper", "1.0", {"z/data2": "SPOIL"}, damaged=True)
    sandbox.run("install", "other", code=1)
    assert sandbox.files() == before


def test_a_file_can_move_to_another_distribution(sandbox: Sandbox) -> None:
    """With pip alone, the new one would lose the file when the old version of the other is removed."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "old", files={"common/words.py": "WORD = 1"}))
    speaker_wheel(sandbox.wheels, "greeter", "2.0", "new", requires=["plughost-words"])
    build_wheel(sandbox.wheels, "plughost-words", "1.0", {"common/words.py": "WORD = 2"})
    sandbox.run("install", "--upgrade", "greeter")
    assert sandbox.files()["common/words.py"] == b"WORD = 2"
    assert "new" in sandbox.files()["speaking_greeter/__init__.py"].decode()


def test_a_file_that_is_only_listed_is_nobodys(sandbox: Sandbox) -> None:
    """Distributions of setup.py list the files of their sources, such as tests, which are not installed."""
    info = sandbox.site / "legacy.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 1.1\nName: legacy\nVersion: 1.0\n")
    (info / "SOURCES.txt").write_text("setup.py\ntests/__init__.py\n")
    speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", files={"tests/__init__.py": ""})
    sandbox.run("install", "greeter")
    assert "tests/__init__.py" in sandbox.files()


def test_a_file_stays_when_one_upgrade_takes_it_from_others(sandbox: Sandbox) -> None:
    """Three had it, and one keeps it: pip removes the others' old versions after it has installed that one."""
    shared = {"common/__init__.py": ""}
    names = ("greeter", "other", "zither")
    sandbox.put(*(speaker_wheel(sandbox.wheels, each, "1.0", "old", files=shared) for each in names))
    for each in names:
        speaker_wheel(sandbox.wheels, each, "2.0", "new", files=shared if each == "zither" else {})
    sandbox.run("install", "--upgrade", *names)
    assert sandbox.versions().items() >= {f"plughost_{each}": "2.0" for each in names}.items()
    assert "common/__init__.py" in sandbox.files()


def test_an_installation_that_ends_while_a_source_is_built_is_seen(sandbox: Sandbox) -> None:
    """Building may take long, and the environment is locked only afterwards."""
    meanwhile = speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", files={"common/words.py": "WORD = 1"})
    wheel = speaker_wheel(sandbox.wheels, "other", "1.0", "other", files={"common/words.py": "WORD = 2"})
    source = sandbox.folder / "source"
    write_project(source, wheel)
    backend = source / "b.py"
    # pip builds it twice: the first time only to read its requirements.
    again = f"shutil.unpack_archive({str(meanwhile)!r}, {str(sandbox.site)!r}, 'zip')"
    counted = f"    {again} if Path('built').exists() else Path('built').touch()\n    return"
    backend.write_text("from pathlib import Path\n" + backend.read_text().replace("    return", counted))
    assert "would overwrite" in sandbox.run("install", source, "--yes", code=1)
    assert sandbox.files()["common/words.py"] == b"WORD = 1"
    assert "plughost_other" not in sandbox.versions()
