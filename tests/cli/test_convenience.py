"""Conveniences of the command line: order, suggestions, completion, a first settings file."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.host.packages import speaker_source
from tests.waiting import wait_until

from plughost._cli.options import console, format_duration, plugins_table
from plughost._commands import COMMANDS
from plughost._runtime.control import send_command
from plughost._tls.certificates import ensure_self_signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Line, Serving

USES_ITS_FOLDER = """
from plughost import hookimpl


@hookimpl
def register_routes(context):
    assert context.data_dir.is_dir()
    return []
"""
EXHAUSTED = """
import resource, sys, threading
from plughost import Operation, Route, RouteGroup, hookimpl


class Exhausted:
    looks = 0

    def on_get(self, req, resp):
        looked = threading.Event()

        def look(event, arguments):
            if event in ("open", "os.scandir") and threading.current_thread().name == "watcher":
                self.looks += 1
                if self.looks > 2:
                    looked.set()

        if self.looks:
            return
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        sys.addaudithook(look)
        looked.wait(20)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@hookimpl
def register_routes(context):
    return [RouteGroup(prefix="/hello", routes=(Route("", Exhausted(), {"GET": Operation(summary="Say")}),))]
"""
"""A plugin that at first leaves its host no descriptor, until the watcher has looked several times."""


def test_the_help_begins_with_the_most_used_command(line: Line) -> None:
    """This is `serve`; every command has its line, and none is cut off."""
    shown = line.run("--help").output
    assert shown.index("  serve ") < shown.index("  plugins ") < shown.index("  stores ")
    assert shown.count("...") == 1, "but for the usage"
    assert [name for name in COMMANDS if f"\n  {name} " not in shown] == []


def test_a_misspelt_command_is_refused_with_the_most_similar(line: Line) -> None:
    """`plughost plguins` is exit code 2 and suggests `plugins`; without a similar one there is no suggestion."""
    wrong = line.run("plguins")
    assert (wrong.exit_code, "Did you mean 'plugins'?" in wrong.stderr) == (2, True)
    assert "Did you mean" not in line.run("xyzzy").stderr


def test_upgrade_does_not_suggest_purge(line: Line) -> None:
    """`plughost upgrade` suggests what upgrades, not the similar command that drops data."""
    assert "Did you mean 'install --upgrade'?" in line.run("upgrade", "messages").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--config", "other.toml", "--json", "settings", "grace_time"),
        ("settings", "grace_time", "--json", "--config=other.toml"),
        ("--config=other.toml", "settings", "--json", "grace_time"),
    ],
)
def test_shared_options_are_accepted_before_and_after_the_command(line: Line, arguments: tuple[str, ...]) -> None:
    """`--config`, `--json` and other shared options mean the same in both places."""
    (line.folder / "other.toml").write_text("grace_time = 7")
    (report,) = json.loads(line.run(*arguments).output)
    assert (report["value"], report["source"]) == (7.0, "other.toml")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_groups_config_is_accepted_anywhere(line: Line, place: int) -> None:
    """`--config` before a group, before its command or after that names the same file."""
    (line.folder / "other.toml").write_text("data_dir = 'elsewhere'")
    words = ["cert", "show"]
    words[place:place] = ["--config", "other.toml"]
    assert "elsewhere" in line.run(*words).stderr


def test_settings_shows_the_requested_keys(line: Line) -> None:
    """Tables and keys may be named, lines are TOML, changed values have their source, unknown keys are reported."""
    line.configure("grace_time = 5")
    assert line.run("settings", "grace_time").output == "grace_time = 5.0  # plughost.toml; by default 30.0\n"
    shown = line.run("settings", "sites.main.cors", "log").output
    assert {row.split(" = ")[0].rpartition(".")[0] for row in shown.splitlines()} == {"sites.main.cors", "log"}
    assert "no setting grce" in line.run("settings", "grce").stderr


def test_init_writes_every_setting_and_changes_nothing(line: Line) -> None:
    """The host accepts the file with every line uncommented except examples, and all values are the defaults."""
    line.install("good")
    assert line.run("init", "new.toml").exit_code == 0
    written = (line.folder / "new.toml").read_text()
    (line.folder / "all.toml").write_text(re.sub(r"(?m)^#(\w+ = .*)(?<!# an example)$", r"\1", written))
    for file, changed in (("new.toml", 0), ("all.toml", 50)):
        shown = json.loads(line.run("settings", "--json", "--config", file).output)
        assert not [each for each in shown if each["value"] != each["default"]]
        assert len([each for each in shown if each["source"] != "default"]) >= changed
        assert changed or not [each for each in shown if each["source"] != "default"]


def test_init_shows_an_example_without_a_default(line: Line) -> None:
    """Every line can be uncommented: no setting of the host is left without a value."""
    line.install("good")
    assert line.run("init", "new.toml").exit_code == 0
    written = (line.folder / "new.toml").read_text()
    assert '\n#allowed = ["plughost-messages >= 1, < 2"]  # an example\n' in written
    assert "# no default" not in written
    tables = tomllib.loads(re.sub(r"(?m)^#(\w+ = )", r"\1", written))
    assert tables["rate_limits"]["storage"].startswith("redis://")


TABLES = """
from pydantic import BaseModel
from plughost import hookimpl

class Settings(BaseModel):
    names: dict[str, list[int]] = {"a b": [1, 2]}
    rows: list[dict[str, str]] = [{"x": "y"}]

@hookimpl
def register_settings():
    return Settings
"""


def test_init_writes_a_default_with_a_table_as_toml(line: Line) -> None:
    """Its line can be uncommented, too."""
    line.install("tables", TABLES)
    assert line.run("init", "new.toml").exit_code == 0
    written = (line.folder / "new.toml").read_text().partition("[plugins.tables]")[2]
    assert tomllib.loads(re.sub(r"(?m)^#(\w+ = )", r"\1", written)) == {"names": {"a b": [1, 2]}, "rows": [{"x": "y"}]}


def test_init_offers_a_site_to_plugins_with_routes(line: Line) -> None:
    """A table is added for it if necessary; a plugin without routes gets none, and a present value is shown."""
    line.install("good")
    line.install("idle", "from plughost import hookimpl\n\n@hookimpl\ndef started(context):\n    pass\n")
    assert line.run("init", "new.toml").exit_code == 0
    written = (line.folder / "new.toml").read_text()
    assert ("[plugins.good]" in written, "[plugins.idle]" in written) == (True, False)
    line.configure('[plugins.idle]\nsite = "admin"')
    output = line.run("settings", "plugins.idle").output
    assert output == 'plugins.idle.site = "admin"  # plughost.toml; by default (not set)\n'


def test_init_overwrites_nothing(line: Line) -> None:
    """An existing file is left alone, and the message says what to do."""
    before = (line.folder / "plughost.toml").read_text()
    refused = line.run("init")
    assert (refused.exit_code, "already exists" in refused.stderr) == (1, True)
    assert (line.folder / "plughost.toml").read_text() == before


def test_init_leaves_no_file_on_a_full_disk(line: Line) -> None:
    """An incomplete file is removed, so that the next try writes it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        refused = line.run("init", "new.toml")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (refused.exit_code, "new.toml can't be written: File too large." in refused.stderr) == (1, True)
    assert not (line.folder / "new.toml").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_the_shell_reads(line: Line, shell: str) -> None:
    """Each shell accepts its script, if the shell is installed."""
    script = line.run("completion", shell).output
    assert "_PLUGHOST_COMPLETE" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("plughost sta", "status"),
        ("plughost disable go", "good"),
        ("plughost settings sites.main.http_p", "sites.main.http_port"),
        ("plughost --config plughost.toml plugins --why g", "good"),
    ],
)
def test_names_are_completed(line: Line, words: str, wanted: str) -> None:
    """Commands, plugins and settings are completed, even if the settings are unusable."""
    line.install("good")
    for settings in ("", "adress = 1"):
        line.configure(settings)
        variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_PLUGHOST_COMPLETE": "bash_complete"}
        code = "from plughost._cli.main import main; main(prog_name='plughost')"
        environment = {**os.environ, **variables, "PYTHONPATH": str(line.packages)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=line.folder, capture_output=True, text=True, check=True
        )
        assert wanted in [row.rpartition(",")[2] for row in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (12345, "3 h 25 min"), (90061, "1 d 1 h")]
)
def test_durations_are_readable(seconds: float, shown: str) -> None:
    """They have at most two units, the largest that apply."""
    assert format_duration(seconds) == shown


def test_tables_show_text_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    """A text in a table, such as a plugin's reason, is never taken for markup or an emoji's name."""
    console().print(plugins_table([("shop", "1.0", "failed", "ValueError: no [red]list[/] of :smile:")]))
    assert "ValueError: no [red]list[/] of :smile:" in capsys.readouterr().out


def test_a_failing_save_is_reported_once(line: Line, serving: Callable[..., Serving]) -> None:
    """A person reads the report with the place in the file; the log adds only the traceback."""
    line.configure('plugins_dir = "single"\nlog.format = "text"')
    file = line.folder / "single" / "hello.py"
    file.parent.mkdir()
    file.write_text("from plughost import hookimpl\n@hookimpl\ndef register_pages(context):\n    return []\n")
    host = serving("--reload")
    file.write_text("x = (\n")
    wait_until(lambda: send_command(line.folder / "plughost-data", "status")["last_reload"] is not None)
    _, errors = host.end(signal.SIGTERM)
    assert errors.count("import: SyntaxError at hello.py:1: '(' was never closed") == 1
    assert errors.count("Traceback (most recent call last)") == 1
    assert "[error] reload" not in errors


def test_saves_are_noticed_after_a_lack_of_descriptors(line: Line, serving: Callable[..., Serving]) -> None:
    """While the process can open no file, nothing can be read; afterwards a save is served as before."""
    line.configure('plugins_dir = "single"')
    file = line.folder / "single" / "hello.py"
    file.parent.mkdir()
    file.write_text(EXHAUSTED)
    host = serving("--reload")
    assert httpx.get(f"{host.url()}/hello", trust_env=False, timeout=60).status_code == 200
    file.write_text(speaker_source("'saved'", "/hello"))
    wait_until(lambda: b"saved" in httpx.get(f"{host.url()}/hello", trust_env=False).content)


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_a_refused_reload_names_each_failure_once(
    line: Line, serving: Callable[..., Serving], strict: tuple[str, ...]
) -> None:
    """The plugin's row explains it; the decisive plugin is named only if others fail, too."""
    line.configure('plugins_dir = "single"')
    folder = line.folder / "single"
    folder.mkdir()
    page = "from plughost import hookimpl\n@hookimpl\ndef register_pages(context):\n    return []\n"
    (folder / "hello.py").write_text(page)
    serving(*strict)
    (folder / "hello.py").write_text("1 / 0\n")
    refused = line.run("reload")
    assert (refused.exit_code, refused.stdout.count("hello (")) == (1, 1)
    assert "problem" not in refused.stdout
    (folder / "other.py").write_text("1 / 0\n")
    assert ("problem  hello (hello.py 0) would be failed\n" in line.run("reload").stdout) == (not strict)


def test_a_traceback_on_a_terminal_begins_in_the_plugin(line: Line, serving: Callable[..., Serving]) -> None:
    """At a start, a save and `plugins --why`, the host's frames are left out; the raising line comes last."""
    line.configure('plugins_dir = "single"\nlog.format = "text"')
    file = line.folder / "single" / "hello.py"
    file.parent.mkdir()
    file.write_text("def begin():\n    raise ValueError('early')\n\n\nbegin()\n")
    host = serving("--reload")
    file.write_text("try:\n    {}['colour']\nexcept KeyError as error:\n    raise ValueError('late') from error\n")
    wait_until(lambda: send_command(line.folder / "plughost-data", "status")["last_reload"] is not None)
    _, errors = host.end(signal.SIGTERM)
    early = [("hello.py", "5"), ("hello.py", "2")]
    late = [("hello.py", "2"), ("hello.py", "4")]
    assert re.findall(r'File ".*?([^/"]*)", line (\d+)', errors) == [*early, *late]
    output = line.run("plugins", "--dev", "--why", "hello").output
    assert re.findall(r'File ".*?([^/"]*)", line (\d+)', output) == late


@pytest.mark.parametrize("command", ["plugins", "routes", "settings", "doctor", "check", "stores"])
def test_a_command_that_only_looks_makes_no_data_folder(line: Line, command: str) -> None:
    """Before the first start, a command that only looks leaves no data folder, whose owner might not be the host's."""
    line.install("demo", USES_ITS_FOLDER)
    line.run(command)
    assert not (line.folder / "plughost-data").exists()


@pytest.mark.parametrize("level", ["info", "debug"])
def test_a_refused_certificate_of_a_client_is_in_the_log_for_debugging(
    line: Line, serving: Callable[..., Serving], monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """At this level alone: strangers could fill the log otherwise."""
    authority = ensure_self_signed(line.folder / "authority", ()).certificate
    monkeypatch.setenv("PLUGHOST_SITES__MAIN__CLIENT_CA", str(authority))
    monkeypatch.setenv("PLUGHOST_LOG__LEVEL", level)
    line.install("good")
    host = serving()
    (url,) = re.findall(r"https://\S+", host.output)
    with pytest.raises(httpx.TransportError):
        httpx.get(url, trust_env=False, verify=False, timeout=60)
    _, errors = host.end(signal.SIGTERM)
    assert ("NoCertificatesPresented" in errors) == (level == "debug")
