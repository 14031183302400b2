"""`plughost install`."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import make_archive
from tempfile import TemporaryDirectory
from threading import Thread

import pytest
from tests.waiting import wait_until

from plughost import CommandError
from plughost_packages.names import is_source, to_requirement

from .environments import PATIENCE, Sandbox, Supplies
from .wheels import broken_wheel, build_wheel, speaker_wheel, store_wheel


def test_an_installed_plugin_serves_at_once(sandbox: Sandbox) -> None:
    """A short name is enough; the running host serves the plugin when the command returns."""
    speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello")
    sandbox.put(speaker_wheel(sandbox.wheels, "other", "1.0", "other"))
    with sandbox.serving() as host:
        host.get("/other")
        output = sandbox.run("install", "greeter")
        assert "plughost-greeter" in output
        assert host.get("/greeter").json()["word"] == "hello"
        assert host.get("/other").json()["count"] == 2


def test_an_upgrade_takes_effect_without_a_restart(sandbox: Sandbox) -> None:
    """The new version answers, from the same process."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "old"))
    with sandbox.serving() as host:
        assert host.get("/greeter").json()["word"] == "old"
        pid = host.status()["pid"]
        speaker_wheel(sandbox.wheels, "greeter", "2.0", "new")
        assert "nothing to install" in sandbox.run("install", "greeter")
        outcome = sandbox.json("install", "--upgrade", "greeter")
        assert [(each["before"], each["after"]) for each in outcome["changes"]] == [("1.0", "2.0")]
        assert outcome["reload"]["changed"] == ["greeter"]
        assert host.get("/greeter").json() == {"word": "new", "count": 1}
        assert host.status()["pid"] == pid


def test_variables_of_pip_lead_nowhere_else(sandbox: Sandbox, tmp_path: Path) -> None:
    """Whatever place or requirements they name, the environment of the command is changed, and as it says."""
    for name in ("greeter", "other", "third"):
        speaker_wheel(sandbox.wheels, name, "1.0", name)
    (tmp_path / "more.txt").write_text("plughost-other")
    place, more = str(tmp_path / "elsewhere"), str(tmp_path / "more.txt")
    sandbox.run("install", "greeter", PIP_PREFIX=place, PIP_ROOT=place, PIP_TARGET=place, PIP_USER="1")
    sandbox.run("install", "third", PIP_REQUIREMENT=more, PIP_DRY_RUN="1")
    assert {"plughost_greeter", "plughost_third"} <= sandbox.versions().keys()
    assert "plughost_other" not in sandbox.versions()
    sandbox.run("uninstall", "greeter", "--yes", PIP_REQUIREMENT=more, PIP_ROOT=place)
    assert "plughost_greeter" not in sandbox.versions()
    assert not (tmp_path / "elsewhere").exists()


def test_a_constraint_chooses_the_version(sandbox: Sandbox) -> None:
    """It is passed on to pip."""
    for version in ("1.0", "2.0"):
        speaker_wheel(sandbox.wheels, "greeter", version, "hello")
    (sandbox.folder / "constraints.txt").write_text("plughost-greeter < 2\n")
    sandbox.run("install", "greeter", "--constraint", "constraints.txt")
    assert sandbox.versions()["plughost_greeter"] == "1.0"


@pytest.mark.thorough
def test_an_upgrade_migrates_its_store_once(sandbox: Sandbox) -> None:
    """Version 2.0 finds the data of 1.0, migrated by its first load and not by a further reload."""
    sandbox.put(store_wheel(sandbox.wheels, "1.0"))
    with sandbox.serving() as host:
        assert host.post("/notes").status_code == 200
        assert host.get("/notes").json() == {"version": "1.0", "notes": 1}
        store_wheel(sandbox.wheels, "2.0")
        sandbox.run("install", "-U", "keeper")
        assert host.get("/notes").json() == {"version": "2.0", "notes": 2}
        sandbox.run("reload")
        assert host.get("/notes").json() == {"version": "2.0", "notes": 2}


@pytest.mark.thorough
def test_an_upgrade_that_would_break_a_serving_plugin_is_reversed(sandbox: Sandbox) -> None:
    """No file of the broken version is left, and the running one continues with its memory."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "old"))
    before = sandbox.files()
    with sandbox.serving() as host:
        host.get("/greeter")
        broken_wheel(sandbox.wheels, "greeter", "2.0")
        output = sandbox.run("install", "--upgrade", "greeter", code=1)
        assert "this version is broken" in output
        assert "so it was undone" in output
        assert host.get("/greeter").json() == {"word": "old", "count": 2}
        assert sandbox.files() == before
        sandbox.run("install", "--upgrade", "greeter", "--keep", code=1)
        assert sandbox.versions()["plughost_greeter"] == "2.0"


def test_an_installation_that_fails_midway_leaves_nothing(sandbox: Sandbox) -> None:
    """If the last of several distributions can't be unpacked, the earlier ones are restored."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "old"))
    before = sandbox.files()
    speaker_wheel(
        sandbox.wheels, "greeter", "2.0", "new", requires=["plughost-helper"], files={"z/data": "SPOIL" * 500}
    )
    build_wheel(sandbox.wheels, "plughost-helper", "1.0", {"helping.py": ""})
    speaker_wheel(
        sandbox.wheels, "greeter", "2.0", "new", requires=["plughost-helper"], files={"z": "SPOIL"}, damaged=True
    )
    output = sandbox.run("install", "--upgrade", "greeter", code=1)
    assert "pip install failed" in output
    assert sandbox.files() == before


def write_project(folder: Path, wheel: Path) -> None:
    """Write the source of a distribution, which is built by copying its wheel."""
    folder.mkdir(parents=True)
    backend = '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(backend)
    (folder / "b.py").write_text(
        "import shutil\n\ndef build_wheel(folder, *_):\n"
        f"    shutil.copy({str(wheel)!r}, folder)\n    return {wheel.name!r}\n"
    )


class AskingForPassword(SimpleHTTPRequestHandler):
    """Serves files to the user `me` with the password `secret`."""

    def do_GET(self) -> None:
        """Send a file, or ask for the password."""
        if self.headers.get("Authorization") == f"Basic {b64encode(b'me:secret').decode()}":
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Basic")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("place", ["git+{}/repository/.git", "git+{}/repository/.git@main", "{}/repository.zip"])
def test_a_folder_of_a_private_repository_or_archive_is_installed(sandbox: Sandbox, place: str) -> None:
    """The URL's password and the folder in its fragment hold for each call of pip."""
    repository = sandbox.folder / "repository"
    project = repository / "plugins" / "greeter"
    write_project(project, speaker_wheel(sandbox.folder, "greeter", "1.0", "hello"))
    make_archive(str(repository), "zip", sandbox.folder, "repository/plugins")
    author = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
    for each in (
        ["init", "-qb", "main"],
        ["add", "."],
        [*author, "commit", "-qm", "a"],
        ["repack", "-adq"],
        ["update-server-info"],
    ):
        subprocess.run(["git", *each], cwd=repository, check=True, timeout=PATIENCE)
    handler = partial(AskingForPassword, directory=str(sandbox.folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = place.format(f"http://me:secret@127.0.0.1:{server.server_port}")
        output = sandbox.run("install", f"{url}#subdirectory=plugins/greeter", "--yes", GIT_TERMINAL_PROMPT="0")
        server.shutdown()
    assert sandbox.versions()["plughost_greeter"] == "1.0"
    assert "secret" not in output


@contextmanager
def gate(folder: Path) -> Iterator[tuple[str, Path]]:
    """Make a statement that tells when it runs, by a file, and waits there for the end of the `with` block."""
    mark, fifo = folder / "came", folder / "fifo"
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDWR)
    try:
        yield f"open({str(mark)!r}, 'w').close(); open({str(fifo)!r}).read()\n", mark
    finally:
        os.close(end)


BACKEND = """
import pathlib


def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "plughost_slow-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: plughost-slow\\nVersion: 1.0\\n")
    return info.name


def build_wheel(folder, *_):
    wheel = pathlib.Path(__file__).with_name("plughost_slow-1.0-py3-none-any.whl")
    if wheel.exists():  # it is built to be looked at, and then by the installation
        return wheel.rename(pathlib.Path(folder, wheel.name)).name
    """


def write_slow_project(project: Path, wait: str) -> None:
    """Write the source of `plughost-slow`, whose second build executes a statement of `gate`."""
    project.mkdir(exist_ok=True)
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (project / "pyproject.toml").write_text(system)
    (project / "backend.py").write_text(f"{BACKEND}{wait}")
    build_wheel(project, "plughost-slow", "1.0", {"slow.py": ""})


def test_an_installation_that_is_terminated_leaves_nothing(sandbox: Sandbox, request: pytest.FixtureRequest) -> None:
    """SIGTERM and SIGHUP, as of a lost connection, undo what is installed already, as Ctrl+C does."""
    before_test = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, the command would ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGHUP, before_test))
    sandbox.put(speaker_wheel(sandbox.folder, "greeter", "1.0", "old"))
    before = sandbox.files()
    wheel = speaker_wheel(sandbox.folder, "greeter", "2.0", "new")
    for number in (signal.SIGTERM, signal.SIGHUP):
        with TemporaryDirectory() as folder, gate(Path(folder)) as (wait, mark):
            write_slow_project(sandbox.folder / "slow", wait)
            with sandbox.running("install", "--yes", wheel, "./slow") as process:
                wait_until(mark.exists)
                assert sandbox.versions()["plughost_greeter"] == "2.0"
                process.send_signal(number)
                assert process.wait() == 128 + number
        assert sandbox.files() == before


@pytest.mark.parametrize(
    ("ending", "interruptions", "code", "version"), [("", 1, 0, "2.0"), ("1 / 0\n", 1, 1, "1.0"), ("", 2, 1, "1.0")]
)
def test_an_interruption_in_the_reload_undoes_only_what_the_host_refuses(
    sandbox: Sandbox, ending: str, interruptions: int, code: int, version: str
) -> None:
    """The host goes on with that reload, and may migrate a store for the new version. A second one undoes at once."""
    sandbox.put(speaker_wheel(sandbox.folder, "greeter", "1.0", "old"))
    with ExitStack() as closed, sandbox.serving() as host:
        wait, mark = closed.enter_context(gate(sandbox.folder))
        hook = "from plughost import hookimpl\n\n@hookimpl\ndef register_checks(context):\n    return []\n"
        module = {"slow.py": f"import sys\nif not hasattr(sys, 'came'):\n    sys.came = True\n    {wait}{hook}{ending}"}
        build_wheel(sandbox.wheels, "plughost-greeter", "2.0", module, plugins={"greeter": "slow"})
        with sandbox.running("install", "-U", "greeter") as process:
            wait_until(mark.exists)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            assert any("Interrupted: waiting for the host" in line for line in process.stdout)
            if interruptions > 1:
                process.send_signal(signal.SIGINT)
                wait_until(lambda: sandbox.versions().get("plughost_greeter") == "1.0")
            closed.close()
            assert process.wait() == code
        assert sandbox.versions()["plughost_greeter"] == version
        assert {each["name"]: each["version"] for each in host.status()["plugins"]}["greeter"] == version


@pytest.mark.thorough
def test_a_replaced_version_can_return_without_an_index(sandbox: Sandbox) -> None:
    """The version that an upgrade replaced is kept as a wheel, and serves again on request."""
    speaker_wheel(sandbox.wheels, "greeter", "1.0", "old")
    sandbox.run("install", "greeter")
    first = sandbox.files()
    (sandbox.wheels / "plughost_greeter-1.0-py3-none-any.whl").unlink()
    speaker_wheel(sandbox.wheels, "greeter", "2.0", "new")
    sandbox.run("install", "-U", "greeter")
    with sandbox.serving() as host:
        sandbox.run("install", "greeter==1.0")
        assert host.get("/greeter").json()["word"] == "old"
    again = sandbox.files()
    assert again.keys() == first.keys()
    assert all(again[name] == first[name] for name in first if not name.endswith("RECORD"))


@pytest.mark.parametrize(
    ("upgrade", "code"),
    [pytest.param(partial(speaker_wheel, word="new"), 0, id="served"), pytest.param(broken_wheel, 1, id="put-back")],
)
def test_the_hosts_user_can_read_what_root_installs_with_umask_077(
    sandbox: Sandbox, upgrade: Callable[..., Path], code: int
) -> None:
    """New files and folders are as readable as the environment; otherwise the host would lose the plugin."""
    sandbox.site.chmod(0o755)
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "old"))
    with sandbox.serving():
        upgrade(sandbox.wheels, "greeter", "2.0")
        before = os.umask(0o077)
        try:
            sandbox.run("install", "-U", "greeter", code=code)
        finally:
            os.umask(before)
    found = [path for path in sandbox.site.rglob("*") if "greeter" in str(path)]
    assert found
    assert [path for path in found if not path.stat().st_mode & 0o004] == []


@pytest.mark.thorough
def test_a_dry_run_changes_nothing(sandbox: Sandbox) -> None:
    """It names each distribution and its version, and installs none of them."""
    build_wheel(sandbox.wheels, "plughost-helper", "3.0", {"helping.py": ""})
    speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", requires=["plughost-helper"])
    before = sandbox.files()
    outcome = sandbox.json("install", "greeter", "--dry-run")
    assert {each["distribution"]: each["after"] for each in outcome["changes"]} == {
        "plughost-greeter": "1.0",
        "plughost-helper": "3.0",
    }
    assert "Nothing was changed" in sandbox.run("install", "greeter", "--dry-run")
    assert sandbox.files() == before


def test_a_change_of_the_hosts_requirements_needs_a_restart(sandbox: Sandbox) -> None:
    """A change of a distribution that the host also uses is announced, and reported by the reload."""
    wheel = build_wheel(sandbox.wheels, "click", "99.0", {"unused_click.py": ""})
    output = sandbox.run("install", wheel, "--dry-run")
    assert "restart needed" in output


@pytest.mark.thorough
def test_an_environment_without_pip_can_be_installed_into(tmp_path: Path, supplies: Supplies) -> None:
    """The pip that comes with Python is used, also where a Linux distribution has it."""
    ensurepip = pytest.importorskip("ensurepip")
    places = [Path(ensurepip.__file__).parent / "_bundled", Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or ".")]
    if not any(list(place.glob("pip-*.whl")) for place in places):
        pytest.skip("this Python comes without a pip")
    sandbox = Sandbox(tmp_path, supplies, pip=False)
    speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello")
    sandbox.run("install", "greeter")
    assert sandbox.versions()["plughost_greeter"] == "1.0"


def test_an_unknown_name_is_an_error(sandbox: Sandbox) -> None:
    """Pip's own message names what was not found."""
    assert "plughost-nonsense" in sandbox.run("install", "nonsense", code=1)


def test_an_index_that_refuses_is_named(sandbox: Sandbox) -> None:
    """It isn't taken for one without the distribution, for which `lock` would make a wheel of the installed files."""

    class Refusing(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403)

    sandbox.put(speaker_wheel(sandbox.folder / "before", "greeter", "1.0", "hello"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}/simple"
        for command in ("install", "plughost-nonsense"), ("lock",):
            output = sandbox.run(*command, "--index-url", index, code=1, PIP_NO_INDEX="0")
            assert f"Could not fetch URL {index}/" in output
            assert "403" in output
            assert "Only wheels are used" not in output
        server.shutdown()
    assert not (sandbox.folder / "plughost.lock").exists()


@pytest.mark.parametrize("given", ["./absent", "/absent.tar.gz", "plughost-absent.zip"])
def test_a_path_of_nothing_is_an_error(sandbox: Sandbox, given: str) -> None:
    """Nobody is asked whether to build what isn't there."""
    output = sandbox.run("install", given, code=1)
    assert f"There is no file or folder {given.removeprefix('./')}." in output
    assert "Build it?" not in output


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("messages", "plughost-messages"),
        ("messages==1.2", "plughost-messages==1.2"),
        ("Messages [postgresql] >= 1", "plughost-messages[postgresql]>=1"),
        ("plughost-messages", "plughost-messages"),
        ("plughost", "plughost"),
        ("shop", "acme-shop"),
        ("shop<2", "acme-shop<2"),
        ("./messages", "./messages"),
        ("messages-1.0-py3-none-any.whl", "messages-1.0-py3-none-any.whl"),
        ("https://example.org/x.whl", "https://example.org/x.whl"),
        ("x @ https://example.org/x.whl", "x @ https://example.org/x.whl"),
    ],
)
def test_names(given: str, asked: str) -> None:
    """A plugin's name means its distribution; a path, a URL and a distribution of ours are taken unchanged."""
    assert to_requirement(given, {"shop": "acme-shop"}) == asked


def test_an_invalid_name_is_refused() -> None:
    """A name that pip couldn't read either is refused before pip runs."""
    with pytest.raises(CommandError, match="neither a plugin's name nor a requirement"):
        to_requirement("messages 1.2", {})
    with pytest.raises(CommandError, match=r"'http://\[/x.zip' is no URL"):
        is_source("http://[/x.zip")
