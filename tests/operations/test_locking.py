"""`plughost lock` and `plughost bundle`."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import zipfile
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from plughost import CommandError, Environment
from plughost_packages.locking import LOCK_NAME, Locked, hash_of, lock, lock_text, members, read_lock, write_lock
from plughost_packages.pip import pip_command
from plughost_packages.repacking import repack

from .environments import Sandbox, Supplies
from .wheels import build_wheel, speaker_wheel, store_wheel

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.thorough
def test_a_locked_set_is_reproduced_elsewhere_without_an_index(
    supplies: Supplies, wheelhouse: Path, tmp_path: Path
) -> None:
    """Lock, bundle, and install from the bundle in a new environment that reaches no index."""
    first, second = (Sandbox(tmp_path / name, supplies, empty=True) for name in ("first", "second"))
    plugins = tmp_path / "plugins"
    speaker_wheel(plugins, "greeter", "1.0", "hello", requires=["plughost-helper"])
    build_wheel(plugins, "plughost-helper", "1.0", {"helping.py": ""})
    index: list[str | Path] = ["--find-links", wheelhouse, "--find-links", plugins]
    local = store_wheel(tmp_path / "local", "1.0")
    first.pip("install", *index, "plughost-packages", "plughost-greeter", local)

    first.run("lock", *index)
    assert first.versions().keys() == {
        entry.name.replace("-", "_") for entry in read_lock(first.folder / "plughost.lock")
    }
    first.run("lock", "--check")
    first.run("bundle", "bundle", "--lock", "plughost.lock", *index, "-f", tmp_path / "local")
    assert "already exists" in first.run("bundle", "bundle", code=1)
    (first.folder / "bundle").rename(tmp_path / "bundle")
    (tmp_path / "local").rename(tmp_path / "gone")

    second.pip("install", "--no-deps", *tmp_path.glob("bundle/*.whl"))
    second.pip("uninstall", "--yes", "plughost-greeter", "plughost-helper", "plughost-keeper")
    assert {
        each["what"]
        for each in second.json("lock", tmp_path / "bundle" / "plughost.lock", "--check", code=1)["differences"]
    } == {"missing"}
    second.run("install", "--bundle", tmp_path / "bundle")
    assert second.versions() == first.versions()
    second.run("lock", tmp_path / "bundle" / "plughost.lock", "--check")
    with second.serving() as host:
        assert host.get("/greeter").json()["word"] == "hello"


@pytest.fixture(scope="session", params=["22.3", "23.0"])
def old_pip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an old pip; the test is skipped if it can't be obtained."""
    if sys.version_info >= (3, 12):
        pytest.skip("so old a pip doesn't run on Python 3.12 and later")
    folder = tmp_path_factory.mktemp("old-pip")
    wanted = ["--no-deps", "--disable-pip-version-check", "--target", str(folder), f"pip=={request.param}"]
    if subprocess.run([*pip_command(), "install", *wanted], check=False, capture_output=True).returncode:
        pytest.skip(f"pip {request.param} can't be had from the index")
    return folder


def test_lock_and_bundle_work_with_an_old_pip(
    supplies: Supplies, wheelhouse: Path, old_pip: Path, tmp_path: Path
) -> None:
    """The hash of each file is that of the installed wheel, though an old pip doesn't report it."""
    box = Sandbox(tmp_path, supplies, pip=old_pip)
    wheel = speaker_wheel(box.wheels, "greeter", "1.0", "hello")
    box.run("install", "greeter")
    box.run("lock", "--find-links", wheelhouse)
    locked = {entry.name: entry.hashes for entry in read_lock(box.folder / "plughost.lock")}
    assert locked["plughost-greeter"] == (hash_of(wheel),)
    assert all(locked.values())
    box.run("bundle", "bundle", "--lock", "plughost.lock", "--find-links", wheelhouse)
    assert len(list((box.folder / "bundle").glob("*.whl"))) == len(locked)


def test_a_pip_that_is_too_old_is_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    """The message has the present version and the required one."""
    folder = tmp_path / "ancient"
    build_wheel(folder, "pip", "21.3", {"pip/__init__.py": "", "pip/__main__.py": ""})
    sandbox.put(folder / "pip-21.3-py3-none-any.whl")
    output = sandbox.run("install", "greeter", code=1)
    assert "has pip 21.3, but 22.3 or newer is needed" in output


def test_lock_and_bundle_use_the_places_of_install(sandbox: Sandbox, wheelhouse: Path) -> None:
    """A distribution from a folder that was passed to `install` is found there again, from any current folder."""
    shop = sandbox.folder / "shop"
    wheel = speaker_wheel(shop, "greeter", "1.0", "hello")
    sandbox.run("install", "greeter", "--find-links", "shop")
    sandbox.run("lock", "elsewhere.lock", "-f", wheelhouse)
    locked = {entry.name: entry.hashes for entry in read_lock(sandbox.folder / "elsewhere.lock")}
    assert locked["plughost-greeter"] == (hash_of(wheel),)
    sandbox.run("bundle", "bundle", "-f", wheelhouse)
    assert hash_of(sandbox.folder / "bundle" / wheel.name) == hash_of(wheel)


def test_a_distribution_that_pip_cannot_find_is_locked_as_installed(sandbox: Sandbox, wheelhouse: Path) -> None:
    """After `pip install --find-links`, `lock` makes wheels of the installed files, and says which."""
    speaker_wheel(sandbox.folder / "shop", "greeter", "1.0", "hello")
    sandbox.pip("install", "--no-deps", "--find-links", sandbox.folder / "shop", "plughost-greeter")
    output = sandbox.run("lock", "--find-links", wheelhouse)
    assert "data/wheels: plughost-greeter." in output
    made = next((sandbox.folder / "data" / "wheels").glob("plughost_greeter-*.whl"))
    locked = {entry.name: entry.hashes for entry in read_lock(sandbox.folder / "plughost.lock")}
    assert locked["plughost-greeter"] == (hash_of(made),)


def test_check_reports_each_difference(sandbox: Sandbox) -> None:
    """A table lists missing, extra and different versions, and the exit code is 1."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "2.0", "hello"))
    output = sandbox.run("lock", "--dry-run")
    lines = [f"{name}=={version}" for name, version in re.findall(r"^(\S+) +(\d\S*) *$", output, re.MULTILINE)]
    file = sandbox.folder / "plughost.lock"
    file.write_text("\n".join(lines))
    sandbox.run("lock", "--check")
    file.write_text("\n".join([*(line for line in lines if "greeter" not in line), "absent==1.0"]))
    assert sandbox.json("lock", "--check", code=1)["differences"] == [
        {"distribution": "absent", "what": "missing", "locked": "1.0", "installed": None},
        {"distribution": "plughost-greeter", "what": "extra", "locked": None, "installed": "2.0"},
    ]
    file.write_text("\n".join(lines).replace("plughost-greeter==2.0", "plughost-greeter==1.0"))
    assert re.search(r"plughost-greeter +other version +1\.0 +2\.0", sandbox.run("lock", "--check", code=1))


def test_a_lock_file_is_parsed_as_written(tmp_path: Path) -> None:
    """Names, versions, URLs and hashes are kept; comments are ignored."""
    entries = [
        Locked(name="a", version="1.0", hashes=("sha256:" + "0" * 64, "sha256:" + "1" * 64)),
        Locked(name="b", version=None, url="https://example.org/b.whl", hashes=("sha256:" + "2" * 64,)),
    ]
    file = tmp_path / "lock"
    file.write_text(lock_text(entries))
    assert read_lock(file) == entries


@pytest.mark.parametrize("text", ["a", "a>=1", "a==1,==2", "-r other", "nonsense nonsense"])
def test_an_invalid_lock_file_is_refused(tmp_path: Path, text: str) -> None:
    """Every line must name an exact version or a URL."""
    (tmp_path / "lock").write_text(text)
    with pytest.raises(CommandError, match="is not a lock file"):
        read_lock(tmp_path / "lock")
    with pytest.raises(CommandError, match="can't be read: Is a directory"):
        read_lock(tmp_path)
    with pytest.raises(CommandError, match=r"There is no lock file .*absent; `plughost lock` writes one\."):
        read_lock(tmp_path / "absent")


def _fake(folder: Path, name: str, requires: str = "", **files: str) -> metadata.Distribution:
    """Return a distribution with nothing but metadata."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}")
    for file, text in files.items():
        (info / file.replace("_json", ".json").replace("_txt", ".txt")).write_text(text)
    return metadata.PathDistribution(info)


def test_a_version_built_again_is_locked_as_it_is_now(sandbox: Sandbox, wheelhouse: Path) -> None:
    """Between two builds of one version, its author may have changed the sources."""
    for word in ("old", "new"):
        sandbox.put(speaker_wheel(sandbox.folder / "shop", "greeter", "1.0", word))
        sandbox.run("lock", "--find-links", wheelhouse)
    sandbox.run("bundle", "bundle", "--find-links", wheelhouse)
    with zipfile.ZipFile(next((sandbox.folder / "bundle").glob("plughost_greeter-*.whl"))) as wheel:
        assert b"'new'" in wheel.read("speaking_greeter/__init__.py")


def test_what_uv_notes_of_an_installation_is_not_locked(sandbox: Sandbox, wheelhouse: Path) -> None:
    """It has the time of the source, so the same files installed twice would have two hashes."""
    sandbox.put(speaker_wheel(sandbox.folder / "shop", "greeter", "1.0", "hello"))
    info = sandbox.site / "plughost_greeter-1.0.dist-info"
    with (info / "RECORD").open("a") as record:
        record.write(f"{info.name}/uv_cache.json,,\n{info.name}/uv_build.json,,\n")
    (info / "uv_build.json").write_text("{}")
    locked = []
    for seconds in (1, 2):
        (info / "uv_cache.json").write_text(f'{{"timestamp": {{"secs_since_epoch": {seconds}}}}}')
        sandbox.run("lock", "--find-links", wheelhouse)
        locked.append((sandbox.folder / "plughost.lock").read_text())
    assert locked[0] == locked[1]


def test_a_bundle_with_a_version_that_is_not_normalised_can_be_installed(sandbox: Sandbox) -> None:
    """Its wheel is known by the version's value, not by its spelling."""
    wheel = speaker_wheel(sandbox.folder / "bundle", "greeter", "2026.01", "hello")
    locked = Locked(name="plughost-greeter", version="2026.01", hashes=(hash_of(wheel),))
    write_lock(wheel.with_name(LOCK_NAME), [locked])
    sandbox.run("install", "--bundle", "bundle")
    assert sandbox.versions()["plughost_greeter"] == "2026.01"


def test_an_editable_install_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no file whose hash could be locked; the message names it."""
    direct_url = json.dumps({"url": "file:///src/plughost", "dir_info": {"editable": True}})
    fake = _fake(tmp_path, "plughost", direct_url_json=direct_url)
    monkeypatch.setattr(metadata, "distributions", lambda: [fake])
    with pytest.raises(CommandError, match=r"plughost 1\.0 \(file:///src/plughost\)"):
        lock([], tmp_path / "wheels", lambda _: None)


def test_a_wheel_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """On a full disk, the message names the wheel, and no part of it is left."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(CommandError, match=r"^The wheel .*packaging.*whl can't be written: File too large\.$"):
            repack(Environment().installed["packaging"], tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_the_set_is_the_host_the_plugins_and_their_requirements(tmp_path: Path) -> None:
    """An extra belongs to the set if all its requirements are installed; distributions that nothing requires don't."""
    extras = "Provides-Extra: a\nProvides-Extra: b\nRequires-Dist: x; extra == 'a'\nRequires-Dist: y; extra == 'b'\n"
    installed = [
        _fake(tmp_path, "plughost", extras),
        _fake(tmp_path, "shop", "Requires-Dist: Lib[more]\n", entry_points_txt="[plughost.plugins]\nshop = shop\n"),
        _fake(tmp_path, "lib", "Provides-Extra: more\nRequires-Dist: z; extra == 'more'\n"),
        *(_fake(tmp_path, name) for name in ("x", "z", "other")),
    ]
    assert members(Environment(installed)) == ["lib", "plughost", "shop", "x", "z"]
