"""Discovery: the installed plugins, their order, and the problems that metadata alone reveals."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.host.packages import plugin_entry, speaker_source, write_package
from tests.host.plugins import Speaker, reason

from plughost._plugins.environment import Environment
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from plughost._plugins.environment import InstalledPlugin


def discover(distributions: Iterable[metadata.Distribution]) -> tuple[InstalledPlugin, ...]:
    """Return the plugins of an environment with these distributions."""
    return Environment(distributions).plugins


def dist(name: str, *requires: str, distribution: str | None = None, version: str = "1.0") -> metadata.Distribution:
    """Return a distribution with a plugin."""
    return plugin_distribution(
        name, Speaker(name, f"/{name}"), requires=requires, distribution=distribution, version=version
    )


def library(folder: Path, name: str, *requires: str) -> metadata.Distribution:
    """Return a distribution without a plugin."""
    write_package(folder, name, {}, requires=requires)
    return next(iter(metadata.distributions(name=name, path=[str(folder)])))


def in_folder(folder: Path) -> tuple[InstalledPlugin, ...]:
    """Return the plugins that a folder holds."""
    return discover(metadata.distributions(path=[str(folder)]))


def names(*distributions: metadata.Distribution) -> list[str]:
    """Return the names of the plugins in order."""
    return [found.name for found in discover(distributions)]


def test_plugins_are_sorted_by_name() -> None:
    """Plugins are sorted by name, whatever the order of the metadata."""
    assert names(dist("c"), dist("a"), dist("b")) == ["a", "b", "c"]


def test_a_plugin_comes_after_its_dependencies() -> None:
    """A dependency comes first; a plugin without dependencies keeps its place by name."""
    assert names(dist("a", "plughost-z"), dist("b"), dist("z")) == ["b", "z", "a"]


def test_a_dependency_through_a_library_counts(tmp_path: Path) -> None:
    """A plugin depends on a plugin that one of its libraries requires, however the name is spelt."""
    found = discover([dist("a", "Some.Library"), library(tmp_path, "some-library", "PlugHost_Z"), dist("z")])
    assert [(each.name, each.requires) for each in found] == [("z", ()), ("a", ("z",))]


def test_a_requirement_for_another_platform_or_extra_is_ignored() -> None:
    """Markers are evaluated: a requirement for another platform or for an extra is not missing here."""
    found = discover([dist("a", "nothing; sys_platform == 'amiga'", "nothing; extra == 'more'")])
    assert found[0].problem is None


def test_a_requested_extra_counts(tmp_path: Path) -> None:
    """A plugin that requests an extra of its library depends on what that extra requires."""
    extras = library(
        tmp_path, "lib", "plughost-y; extra == 'less'", "plughost-z; extra == 'more'", "plughost-x; os_name != ''"
    )
    found = discover([dist("a", "lib[more]"), extras, dist("x"), dist("y"), dist("z")])
    assert {each.name: each.requires for each in found}["a"] == ("x", "z")
    assert [each.name for each in Environment([extras]).requirements("lib", "more")] == ["plughost-z"]


def test_an_installed_pre_release_meets_a_requirement() -> None:
    """A requirement accepts a pre-release, since that is what is installed."""
    assert discover([dist("a", "plughost-z>=1"), dist("z", version="2.0b1")])[1].unmet is None


def test_a_missing_requirement_names_who_requires_it(tmp_path: Path) -> None:
    """A library appears under its own name, a plugin's own distribution as `it`."""
    (found,) = discover([dist("a", "some-library"), library(tmp_path, "Some.Library", "ghost")])
    assert found.unmet == "Some.Library requires ghost, and it is not installed"


SEVERAL = """
[console_scripts]
one = several:main

[plughost.plugins]
one = several:one
two = several:two
"""


def test_a_distribution_may_bring_several_plugins(tmp_path: Path) -> None:
    """Each plugin has its own entry point, and they don't depend on each other."""
    write_package(tmp_path, "several", {}, entry_points=SEVERAL)
    found = [(each.name, each.entry_point.value, each.requires, each.problem) for each in in_folder(tmp_path)]
    assert found == [("one", "several:one", (), None), ("two", "several:two", (), None)]


def test_a_name_for_two_objects_is_refused(tmp_path: Path) -> None:
    """The reason names both objects of a distribution that declares one plugin name twice."""
    twice = f"{plugin_entry('one', 'several:one')}one = several:other\n"
    write_package(tmp_path, "several", {}, entry_points=twice)
    (found,) = {each.problem for each in in_folder(tmp_path)}
    assert found == "its distribution names two objects for it, several:one and several:other"


def test_a_plugin_never_depends_on_itself() -> None:
    """Of two distributions with the same plugin, one may require the other."""
    found = discover([dist("same", "b-second", distribution="a-first"), dist("same", distribution="b-second")])
    assert [each.requires for each in found] == [(), ()]


def test_a_distribution_that_lacks_its_entry_point_is_reported(tmp_path: Path) -> None:
    """It is named like a plugin, requires the host, has no entry point, and nothing requires it: probably a mistake."""
    write_package(tmp_path, "plughost-lost", {}, requires=["plughost"])
    write_package(tmp_path, "plughost-tool", {})
    write_package(tmp_path, "plughost-base", {}, requires=["plughost"])
    entry = plugin_entry("top", "top")
    write_package(tmp_path, "plughost-top", {}, requires=["plughost", "plughost-base"], entry_points=entry)
    write_package(tmp_path, "lost", {}, requires=["plughost"])
    message = "plughost-lost is installed, but is not a plugin: it has no entry point in plughost.plugins"
    assert Environment(metadata.distributions(path=[str(tmp_path)])).warnings == (message,)


def test_a_cycle_of_requirements_is_sorted_by_name() -> None:
    """Distributions that require each other are sorted by name, and both serve."""
    found = discover([dist("b", "plughost-a"), dist("a", "plughost-b")])
    assert [(each.name, each.problem) for each in found] == [("a", None), ("b", None)]


@pytest.mark.parametrize(
    ("requires", "message"),
    [
        ("ghost-library", "it requires ghost-library, and it is not installed"),
        ("plughost-z>=2", "it requires plughost-z>=2, and 1.0 is installed"),
        ("plughost>=99", "it requires plughost>=99, and "),
    ],
)
def test_a_dependency_problem_is_reported_before_import(requires: str, message: str) -> None:
    """A missing or too old dependency, such as the host, blocks the plugin before its import."""
    installed = [
        plugin_distribution("a", AssertionError("it was imported"), requires=[requires]),
        dist("z"),
        metadata.distribution("plughost"),
    ]
    with running_host(distributions=installed) as host:
        assert reason(host, "a").startswith(f"blocked: dependency: {message}")
        assert reason(host, "z") == "active: None"


def test_two_distributions_of_one_plugin_name() -> None:
    """The distribution that sorts first serves; the other gives the reason why it doesn't."""
    first = dist("same", distribution="a-first")
    second = plugin_distribution("same", AssertionError("it was imported"), distribution="b-second")
    with running_host(distributions=[second, first]) as host, host.client() as client:
        assert client.get("/same").status_code == 200
        assert host.host.generation is not None
        other = host.host.generation.registry.records[1]
        assert "the distribution a-first already brings a plugin of this name" in str(other.failure)


@pytest.mark.parametrize("name", ["Upper", "under_score", "-", "a--b", "a b", "über", "a.b", "a-"])
def test_bad_names_are_refused(name: str) -> None:
    """A plugin's name is lower-case words joined by hyphens: it is a command, a settings key and a folder."""
    assert "lower-case words" in str(discover([dist(name)])[0].problem)


@pytest.mark.parametrize("name", ["serve", "plugins", "status"])
def test_a_plugin_may_not_have_the_name_of_a_host_command(name: str) -> None:
    """`plughost serve` belongs to the host: a plugin of that name fails with this reason."""
    assert f"`plughost {name}` is a command of the host" in str(discover([dist(name)])[0].problem)


def test_the_first_of_two_installations_counts(tmp_path: Path) -> None:
    """If a distribution is in two folders, such as an editable install and a copy, the first on `sys.path` counts."""
    for version, folder in (("2.0", tmp_path / "first"), ("1.0", tmp_path / "second")):
        write_package(folder, "twice", {}, version=version, entry_points=plugin_entry("twice", "twice:plugin"))
    both = [str(tmp_path / "first"), str(tmp_path / "second")]
    assert [each.version for each in discover(metadata.distributions(path=both))] == ["2.0"]


BROKEN: dict[str, dict[str, bytes]] = {
    "no metadata": {},
    "empty metadata": {"METADATA": b""},
    "no version": {"METADATA": b"Metadata-Version: 2.1\nName: broken\n"},
    "odd version": {"METADATA": b"Metadata-Version: 2.1\nName: broken\nVersion: banana\n"},
    "odd requirement": {"METADATA": b"Name: broken\nVersion: 1\nRequires-Dist: a >>> b\nRequires-Dist: good<2; x==y\n"},
    "odd marker": {"METADATA": b"Name: broken\nVersion: 1\nRequires-Dist: a; sys_platform ~= 'x'\n"},
    "gaps in the record": {"METADATA": b"Name: broken\nVersion: 1\n", "RECORD": b"\n\nbroken.py,,\n\n"},
    "binary metadata": {"METADATA": b"Name: \xff\xfe\x00broken\nVersion: \xff\n"},
    "odd entry points": {"METADATA": b"Name: broken\nVersion: 1\n", "entry_points.txt": b"[plughost.plugins]\nfoo\n"},
    "binary entry points": {
        "METADATA": b"Name: broken\nVersion: 1\n",
        "entry_points.txt": b"[plughost.plugins]\n\xff=\xfe",
    },
    "no target": {"METADATA": b"Name: broken\nVersion: 1\n", "entry_points.txt": b"[plughost.plugins]\nfoo =\n"},
    "odd target": {"METADATA": b"Name: broken\nVersion: 1\n", "entry_points.txt": b"[plughost.plugins]\nfoo = a b c\n"},
    "binary record": {"METADATA": b"Name: broken\nVersion: 1\n", "RECORD": b"\xff\xfe\x00,,\n"},
    "odd origin": {"METADATA": b"Name: broken\nVersion: 1\n", "direct_url.json": b"{", "RECORD": b""},
    "deep origin": {"METADATA": b"Name: broken\nVersion: 1\n", "direct_url.json": b"[" * 100_000},
    "deep marker": {"METADATA": b"Name: broken\nVersion: 1\nRequires-Dist: a; " + b"(" * 5000},
    **{
        f"odd folder {folder}": {
            "METADATA": b"Name: broken\nVersion: 1\n",
            "direct_url.json": b'{"url": "file://%s", "dir_info": {"editable": true}}' % folder.encode(),
        }
        for folder in ("[", "/a%00b", "/a\\ud800")
    },
}


def test_a_plugin_in_an_archive_is_found(tmp_path: Path) -> None:
    """Python imports from wheels and other ZIP files on its path, and their metadata have no path on the disk."""
    write_package(tmp_path / "source", "zipped", {"zipped.py": ""}, entry_points=plugin_entry("zipped", "zipped"))
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path / "source")
    assert [each.name for each in in_folder(Path(archive))] == ["zipped"]


@pytest.mark.parametrize("what", BROKEN)
def test_broken_metadata_of_one_distribution_affects_no_other(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a dist-info folder contains, the other distributions' plugins are found and serve."""
    broken = tmp_path / "broken-1.dist-info"
    broken.mkdir()
    for file, content in BROKEN[what].items():
        (broken / file).write_bytes(content)
    entry = plugin_entry("good", "discovered_good")
    known = b"Name: broken\n" in BROKEN[what].get("METADATA", b"") and "target" not in what
    requires = ["broken"] if known else []
    source = {"discovered_good.py": speaker_source("'good'", "/good")}
    write_package(tmp_path, "good", source, requires=requires, entry_points=entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "discovered_good", raising=False)
    installed = list(metadata.distributions(path=[str(tmp_path)]))
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert host.host.reload().swapped
