"""`plughost uninstall`."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plughost._runtime.control import send_command
from plughost.testing import store_settings

from .test_developing import install_in_place
from .wheels import build_wheel, speaker_wheel, store_wheel

if TYPE_CHECKING:
    from .environments import Sandbox


def test_an_uninstalled_plugin_is_gone_and_its_data_stays(sandbox: Sandbox) -> None:
    """The running host answers 404; installed again, the plugin finds its data."""
    sandbox.put(store_wheel(sandbox.wheels, "1.0"), speaker_wheel(sandbox.wheels, "other", "1.0", "other"))
    with sandbox.serving() as host:
        host.get("/other")
        host.post("/notes")
        output = sandbox.run("uninstall", "keeper", "--yes")
        assert "Their data is kept: the store notes in " in output
        assert host.get("/notes").status_code == 404
        assert "plughost_keeper" not in sandbox.versions()
        sandbox.run("install", "keeper")
        assert host.get("/notes").json()["notes"] == 1
        assert host.get("/other").json()["count"] == 2


@pytest.mark.thorough
def test_a_purge_while_a_host_runs(sandbox: Sandbox) -> None:
    """With --purge, the data is dropped after the host has released it; the answer has to be typed."""
    wheel = store_wheel(sandbox.wheels, "1.0")
    sandbox.put(wheel)
    store = sandbox.folder / "data" / "stores" / "notes.sqlite3"
    with sandbox.serving() as host:
        host.post("/notes")
        sandbox.run("uninstall", "keeper", "--purge", code=1, typed="no\n")
        assert host.get("/notes").json()["notes"] == 1
        assert "Drop this data" not in sandbox.run("uninstall", "keeper", code=1, typed="n\n")
        output = sandbox.run("uninstall", "keeper", typed="y\ny\nkeeper\n")
        assert output.index("Uninstall?") < output.index("Drop this data") < output.index("Dropped the store notes in ")
        assert not store.exists()
        sandbox.put(wheel)
        sandbox.run("reload")
        assert host.get("/notes").json()["notes"] == 0


def test_a_purge_on_postgresql_reads_the_migrations_before_they_are_removed(sandbox: Sandbox) -> None:
    """A version older than the store must not drop it, so their number has to be known."""
    sandbox.put(store_wheel(sandbox.wheels, "1.0", "postgresql"))
    with store_settings("postgresql") as settings, (sandbox.folder / "plughost.toml").open("a") as file:
        print(f'[stores]\nurl = "{settings["stores"]["url"]}"', file=file, flush=True)
        with sandbox.serving():
            output = sandbox.run("uninstall", "keeper", "--purge", "--yes")
        assert "Dropped the store notes in postgresql://" in output


def test_data_is_not_dropped_without_a_yes(sandbox: Sandbox) -> None:
    """A program that reads JSON can't be asked, so it has to say --yes."""
    sandbox.put(store_wheel(sandbox.wheels, "1.0"))
    with sandbox.serving() as host:
        host.post("/notes")
        assert "needs --yes" in sandbox.run("uninstall", "keeper", "--purge", "--json", code=2)
        assert host.get("/notes").json()["notes"] == 1
    assert sandbox.json("uninstall", "keeper", "--purge", "--dry-run")["changes"]
    assert sandbox.json("uninstall", "keeper", "--purge", "--yes")["ok"]
    assert not (sandbox.folder / "data" / "stores" / "notes.sqlite3").exists()


def test_a_purge_without_the_hosts_environment_changes_nothing(sandbox: Sandbox) -> None:
    """If a plugin's secret is only there, the command doesn't know the stores, and says where it looks."""
    source = """
from plughost import hookimpl
from pydantic import BaseModel


class Settings(BaseModel):
    secret: str


@hookimpl
def register_settings():
    return Settings
"""
    plugins = {"secretive": "secretive"}
    sandbox.put(build_wheel(sandbox.wheels, "plughost-secretive", "1.0", {"secretive.py": source}, plugins=plugins))
    output = sandbox.run("uninstall", "secretive", "--purge", "--yes", code=1)
    assert "plugins.secretive.secret" in output
    assert "reads the environment of its own shell: give it the variables that the host has" in output


def test_a_distribution_named_twice_is_removed_once(sandbox: Sandbox) -> None:
    """The names of a plugin and of its distribution mean the same."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    (change,) = sandbox.json("uninstall", "greeter", "plughost-greeter", "--dry-run")["changes"]
    assert change["distribution"] == "plughost-greeter"


def test_a_plugin_of_two_distributions_is_not_guessed(sandbox: Sandbox) -> None:
    """The command names both, and each can be uninstalled by its own name."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    sandbox.put(build_wheel(sandbox.wheels, "another", "1.0", {"a.py": ""}, plugins={"greeter": "a"}))
    output = sandbox.run("uninstall", "greeter", "--yes", code=1)
    assert "another, plughost-greeter" in output
    sandbox.run("uninstall", "another", "--yes")
    sandbox.run("uninstall", "greeter", "--yes")
    assert not {"another", "plughost_greeter"} & sandbox.versions().keys()


def test_a_plan_that_another_command_has_overtaken_is_refused(sandbox: Sandbox) -> None:
    """While a command asks, another one may remove the same plugin."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    with sandbox.running("uninstall", "greeter") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        while "removed" not in process.stdout.readline():
            pass
        sandbox.run("uninstall", "greeter", "--yes")
        process.stdin.write("y\n")
        process.stdin.close()
        output = process.stdout.read()
        assert process.wait() == 1
    assert "Another command has changed plughost-greeter meanwhile" in output
    assert "Traceback" not in output


@pytest.mark.thorough
def test_a_failed_purge_restores_the_plugin(sandbox: Sandbox) -> None:
    """If another host serves the data, the plugin is installed again and serves as before."""
    sandbox.put(store_wheel(sandbox.wheels, "1.0"))
    with sandbox.serving() as host:
        host.post("/notes")
        other = sandbox.folder / "other.toml"
        other.write_text((sandbox.folder / "plughost.toml").read_text().replace('"data"', '"other"'))
        (sandbox.folder / "other").mkdir()
        (sandbox.folder / "other" / "stores").symlink_to(sandbox.folder / "data" / "stores")
        with sandbox.serving("--config", "other.toml", data="other"):
            output = sandbox.run("uninstall", "keeper", "--purge", "--yes", code=1)
        assert "A host serves the store notes" in output
        assert host.get("/notes").json()["notes"] == 1
        assert sandbox.versions()["plughost_keeper"] == "1.0"


@pytest.mark.thorough
def test_a_required_plugin_stays_unless_forced(sandbox: Sandbox) -> None:
    """The dependents are named; forced, they are blocked and the rest serves; unused distributions are listed."""
    base = speaker_wheel(sandbox.wheels, "base", "1.0", "base", requires=["plughost-helper"])
    top = speaker_wheel(sandbox.wheels, "top", "1.0", "top", requires=["plughost-base"])
    helper = build_wheel(sandbox.wheels, "plughost-helper", "1.0", {"helping.py": ""})
    sandbox.put(base, top, helper, speaker_wheel(sandbox.wheels, "other", "1.0", "other"))
    before = sandbox.files()
    assert "plughost-top 1.0 requires plughost-base" in sandbox.run("uninstall", "base", "--yes", code=1)
    assert "plughost-base, plughost-helper" in sandbox.run("uninstall", "top", "--dry-run")
    assert sandbox.files() == before
    with sandbox.serving() as host:
        host.get("/other")
        outcome = sandbox.json("uninstall", "base", "--force", code=1)
        assert (outcome["reload"]["failed"], outcome["reload"]["removed"]) == ([], ["base"])
        assert [name for name, _ in outcome["reload"]["blocked"]] == ["top (plughost-top 1.0)"]
        assert host.get("/other").json()["count"] == 2
        sandbox.run("install", "base")
        sandbox.run("uninstall", "top", "--with-unused", "--yes")
        ours = sandbox.versions().keys() - {"plughost", "plughost_packages"}
        assert ours == {"plughost_other", "plughost_base", "plughost_helper"}
        sandbox.run("uninstall", "base", "--with-unused", "--yes")
        assert sandbox.versions().keys() == {"plughost", "plughost_packages", "plughost_other"}


@pytest.mark.thorough
def test_the_host_and_its_requirements_cannot_be_uninstalled(sandbox: Sandbox) -> None:
    """A distribution that isn't installed can't either."""
    assert "The host itself requires plughost" in sandbox.run("uninstall", "plughost", "--yes", code=1)
    assert "The host itself requires" in sandbox.run("uninstall", "falcon", "--yes", code=1)
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    assert "did you mean greeter?" in sandbox.run("uninstall", "greater", "--yes", code=1)
    assert "there are: greeter, packages." in sandbox.run("uninstall", "nothing", "--yes", code=1)


@pytest.mark.thorough
def test_a_plugin_that_the_settings_require_is_restored(sandbox: Sandbox) -> None:
    """The running host refuses its removal, and everything is as before."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    settings = sandbox.folder / "plughost.toml"
    settings.write_text(f'required = ["greeter"]\n{settings.read_text()}')
    before = sandbox.files()
    with sandbox.serving() as host:
        output = sandbox.run("uninstall", "greeter", "--yes", code=1)
        assert "the required plugin greeter is not installed" in output
        assert sandbox.files() == before
        assert host.get("/greeter").json()["count"] == 1


def test_debris_of_a_killed_pip_is_ignored_and_removed(sandbox: Sandbox) -> None:
    """Files that pip had renamed serve no plugin, are reported, and are removed by the next change."""
    sandbox.put(
        speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"), speaker_wheel(sandbox.wheels, "other", "1.0", "other")
    )
    info = sandbox.site / "plughost_greeter-1.0.dist-info"
    info.rename(sandbox.site / "~lughost_greeter-1.0.dist-info")
    (sandbox.site / "speaking_greeter").rename(sandbox.site / "~peaking_greeter")
    assert [each["name"] for each in sandbox.json("plugins")] == ["other", "packages"]
    assert "an installer was killed while it removed or replaced it" in sandbox.run(
        "plugins", "--why", "greeter", code=1
    )
    assert "greeter is not installed" in sandbox.run("uninstall", "greeter", "--yes", code=1)
    sandbox.run("uninstall", "other", "--yes")
    assert not list(sandbox.site.glob("~*"))


def test_a_crash_of_pip_is_told_by_its_reason(sandbox: Sandbox) -> None:
    """Nothing of its traceback is shown but the end."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    (sandbox.site / "plughost_greeter-1.0.dist-info" / "RECORD").write_text("x" * 200_000 + ",,\n")
    output = sandbox.run("uninstall", "greeter", "--yes", code=1)
    assert "field larger than field limit" in output
    assert 'File "' not in output


def test_a_plugin_with_its_own_debris_is_uninstalled(sandbox: Sandbox) -> None:
    """If a killed pip left a second copy of the metadata, both are removed."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    shutil.copytree(sandbox.site / "plughost_greeter-1.0.dist-info", sandbox.site / "~lughost_greeter-1.0.dist-info")
    with sandbox.serving() as host:
        sandbox.run("uninstall", "greeter", "--yes")
        assert [each["name"] for each in host.status()["plugins"]] == ["packages"]
    assert not list(sandbox.site.glob("*greeter*"))


def test_an_uninstallation_without_effect_is_a_failure(sandbox: Sandbox) -> None:
    """Pip reports success though it changes nothing outside of the environment; the command says where they are."""
    outside = sandbox.folder.parent / "outside"
    with zipfile.ZipFile(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello")) as archive:
        archive.extractall(outside)
    (sandbox.site / "more.pth").write_text(f"{outside}\n")
    output = sandbox.run("uninstall", "greeter", "--yes", code=1)
    assert "pip reported success without effect" in output
    assert f"1.0 is installed in {outside}" in output


def test_an_editable_install_is_uninstalled(sandbox: Sandbox, tmp_path: Path) -> None:
    """Its builder's metadata beside the sources, `*.egg-info`, counts as not installed."""
    project = tmp_path / "project"
    left = project / "plughost_edited.egg-info"
    left.mkdir(parents=True)
    (left / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: plughost-edited\nVersion: 1.0\n")
    (project / "edited.py").write_text("")
    install_in_place(sandbox, project, "folder")
    info = sandbox.site / "plughost_edited-1.0.dist-info"
    files = ["_edited.pth", *(f"{info.name}/{each.name}" for each in info.iterdir())]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    assert "removed" in sandbox.run("uninstall", "edited", "--yes")
    assert "plughost_edited" not in sandbox.versions()
    assert left.is_dir()


@pytest.mark.parametrize("command", ["uninstall", "lock"])
def test_a_malformed_distribution_prevents_no_change(sandbox: Sandbox, wheelhouse: Path, command: str) -> None:
    """Despite a line without = in entry_points.txt or a garbage RECORD, the change is made."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    damage = [("a", "entry_points.txt", b"[x]\nno target\n"), ("b", "RECORD", b"\xff\x00,,\n")]
    for name, file, content in (*damage, ("c", "RECORD", b"x" * 200_000 + b",,\n")):
        info = sandbox.site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / file).write_bytes(content)
    if command == "uninstall":
        sandbox.run("uninstall", "greeter", "--yes")
        assert "plughost_greeter" not in sandbox.versions()
    else:
        assert "distributions." in sandbox.run("lock", "--find-links", wheelhouse)
        assert "plughost-greeter==1.0" in (sandbox.folder / "plughost.lock").read_text()


def test_a_reload_without_the_environment_removes_no_plugin(sandbox: Sandbox) -> None:
    """Another Python may make it anew below a running host, whose plugins then serve until the restart."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello"))
    moved = sandbox.site.with_name("moved")
    with sandbox.serving() as host:
        assert host.get("/greeter").json()["count"] == 1
        sandbox.site.rename(moved)
        report = send_command(sandbox.folder / "data", "reload", accept=[])
        assert "plughost can't be found any more" in str(report["restart_needed"])
        moved.rename(sandbox.site)
        assert host.get("/greeter").json()["count"] == 2
