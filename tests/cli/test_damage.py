"""A damaged installation or library crashes no command; each command runs in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.packages import write_package

from plughost._optional import ZSTD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Line, Serving

    Serve = Callable[..., Serving]

DAMAGE: dict[str, dict[str, str | bytes]] = {
    "a-line-without-an-equals-sign": {"entry_points.txt": "[plughost.plugins]\nno target\n"},
    "entry-points-in-no-section": {"entry_points.txt": "damaged = damaged\n"},
    "binary-entry-points": {"entry_points.txt": b"[console_scripts]\n\xff=\xfe\n"},
    "one-name-twice": {"entry_points.txt": "[plughost.plugins]\nx = a:b\nx = c:d\n"},
    "no-metadata": {"entry_points.txt": ""},
    "empty-metadata": {"METADATA": ""},
    "binary-metadata": {"METADATA": b"Name: \xff\xfe\x00\nVersion: \xff\n"},
    "a-garbage-record": {"RECORD": b'\xff\xfe\x00,,\n"a,b,c,d\n'},
    "a-record-with-odd-sizes": {"RECORD": "a.py,sha256=x,many,more\n"},
    "a-garbage-origin": {"direct_url.json": "{"},
    "an-origin-that-is-a-list": {"direct_url.json": "[1]"},
    "an-origin-that-is-half": {"direct_url.json": '{"archive_info": [], "dir_info": 3}'},
    "terminal-sequences": {
        "METADATA": b"Name: titled\x1b]0;x\x07\nVersion: 1\x1b[2J\nRequires-Dist: plughost\n",
        "entry_points.txt": "[plughost.plugins]\nshop\x1b[2J = a:b\n[plughost.\x9b7mplugin]\ny\x1b[2J = c:d\n",
    },
    "a-marker-that-can-not-be-told": {"METADATA": "Requires-Dist: other<2; python_version < 'banana'\n"},
}
COMMANDS = ("plugins", "check", "settings", "routes", "lock --dry-run", "stores", "doctor", "--help")
LOOKING = [tuple(command.split()) for command in COMMANDS]


def run(line: Line, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run a command in its own process; return its exit code and all output."""
    ended = subprocess.run(
        [sys.executable, "-c", "from plughost._cli import main; main()", *arguments],
        cwd=line.folder,
        env={**os.environ, "PYTHONPATH": str(line.packages), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout


def damage(line: Line) -> None:
    """Add one distribution of each kind of damage and an unreadable folder to the path."""
    for name, files in DAMAGE.items():
        info = line.packages / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        fields = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        if name != "no-metadata":
            (info / "METADATA").write_text(fields)
        for file, content in files.items():
            whole = fields + content if file == "METADATA" and isinstance(content, str) and content else content
            (info / file).write_bytes(whole if isinstance(whole, bytes) else whole.encode())
    (line.packages / "endless-1.0.dist-info").symlink_to("endless-1.0.dist-info")


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_damaged_distributions_crash_no_command(line: Line, arguments: tuple[str, ...]) -> None:
    """Whatever the dist-info folders contain, no command ends in a traceback or prints their terminal sequences."""
    line.install("good")
    damage(line)
    code, output = run(line, *arguments)
    assert "Traceback" not in output, output
    assert not {"\x07", "\x1b", "\x9b"} & set(output), repr(output)
    assert code in {0, 1}, output


@pytest.mark.parametrize("command", ["plugins", "serve", "--help"])
def test_a_removed_folder_is_named(tmp_path: Path, command: str) -> None:
    """Who runs a command in a folder that is gone is told so, without a traceback."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD" && exec "$0" -c "from plughost._cli import main; main()" "$1"'
    ended = subprocess.run(
        ["sh", "-c", script, sys.executable, command], cwd=gone, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "Error: The current folder was removed. Change to another one.\n")


def test_damage_is_reported_and_affects_no_other_plugin(line: Line) -> None:
    """Plugins of other distributions are active, and the damage is listed below them."""
    line.install("good")
    damage(line)
    states = {each["name"]: each["state"] for each in plugins(line)}
    assert (states["good"], states["x"]) == ("active", "failed")
    _, output = run(line, "plugins")
    assert "a_line_without_an_equals_sign-1.0.dist-info is damaged: entry_points.txt can't be read" in output
    assert "the line 'no target' has no =" in output
    assert "x (one-name-twice 1.0) is failed.\n  metadata: its distribution names two objects for it" in output
    assert r"shop\x1b[2J (titled\x1b]0;x\x07 1\x1b[2J) is failed." in output


def plugins(line: Line) -> list[dict[str, Any]]:
    """Return the output of `plughost plugins --json`."""
    report: list[dict[str, Any]] = json.loads(run(line, "plugins", "--json")[1])
    return report


BROKEN = "raise {}('broken on purpose')\n"
LIBRARIES = """
[rate_limits]
storage = "redis://127.0.0.1:1/0"
[sites.library.compression]
encodings = ["zstd"]
[stores.urls]
messages = "postgresql://postgres@127.0.0.1:1/nothing"
"""


@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_a_broken_optional_library_crashes_no_command(line: Line, error: str) -> None:
    """Commands that show something still do, and `check` and `plugins` name the setting and the library."""
    line.install("good")
    for module in ("redis", "psycopg2", ZSTD.replace(".", "/")):
        (line.packages / module).mkdir(parents=True)
        (line.packages / module / "__init__.py").write_text(BROKEN.format(error))
    (line.folder / "plughost.toml").write_text(LIBRARIES)
    results = {arguments: run(line, *arguments) for arguments in LOOKING if arguments[0] != "lock"}
    for arguments, (code, text) in results.items():
        assert "Traceback" not in text, text
        assert code in {0, 1}, f"{arguments}: {text}"
    for command in ("check", "plugins"):
        assert f"rate_limits.storage: redis can't be imported ({error}: broken on purpose)" in results[command,][1]
        if ZSTD != "compression.zstd":  # Python's own module, from 3.14 on, can't be broken
            assert f"sites.library.compression.encodings: {ZSTD} can't be imported" in results[command,][1]
        assert results[command,][0] == 1
    assert "/good" in results["routes",][1]


@pytest.mark.parametrize(("command", "code"), [("status", 1), ("drain", 1), ("check", 2), ("--help", 0)])
def test_an_inaccessible_settings_file_is_reported(line: Line, command: str, code: int) -> None:
    """Commands that need it name the file and the system's error, without a traceback."""
    file = line.folder / ("x" * 300 + ".toml")  # longer than allowed, which has an effect for root, too
    ended, output = run(line, command, PLUGHOST_CONFIG=str(file))
    assert "Traceback" not in output
    assert (f"{file}: it can't be read: " in output, ended) == (code != 0, code)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "Is a directory; make it a file that this user may read"), (b"\xff", "start byte; save it as UTF-8")],
)
def test_an_unreadable_settings_file_says_what_to_do(line: Line, content: bytes | None, message: str) -> None:
    """A folder in its place and another encoding each have their own advice."""
    file = line.folder / "plughost.toml"
    file.unlink()
    file.mkdir() if content is None else file.write_bytes(content)
    result = line.run("check")
    assert (result.exit_code, message in result.output) == (2, True), result.output


@pytest.mark.parametrize("settings", ["colour = 1", 'data_dir = "data"\n[sites', "disabled = 3", "\0", 'strict = "'])
def test_status_works_with_unusable_settings(line: Line, serving: Serve, settings: str) -> None:
    """It shows the running host after a warning; it needs only the data folder of the settings."""
    line.install("good")
    line.configure('data_dir = "data"')
    host = serving()
    (line.folder / "plughost.toml").write_text(f'data_dir = "data"\n{settings}\n')
    code, output = run(line, "status")
    assert "Warning: plughost.toml: " in output
    assert f"is serving, process {host.process.pid}" in output
    assert code == 0


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000])
def test_status_names_a_data_folder_that_cannot_be_read(line: Line, value: str) -> None:
    """It assumes the default folder, without a traceback."""
    (line.folder / "plughost.toml").write_text(f"data_dir = {value}\n")
    code, output = run(line, "status")
    assert "Warning: plughost.toml: it is not valid TOML" in output
    assert (code, "No host is running" in output, "Traceback" in output) == (1, True, False)


def test_why_explains_why_a_distribution_is_no_plugin(line: Line) -> None:
    """It may have no entry point or one in the wrong group, be damaged or be missing: each has its sentence."""
    line.install("good")
    line.install("bad", "raise RuntimeError('broken on purpose')")
    points = {"plain": None, "tool": "[console_scripts]\ntool = tool:main\n", "typo": "[plughost.plugin]\nt = t:t\n"}
    for name, text in points.items():
        write_package(line.packages, f"plughost-{name}", {}, entry_points=text)
    damage(line)
    for name, message in {
        "good": "good (cli-good 1.0) is active, and serves /good on the site main.",
        "cli-good": "good (cli-good 1.0) is active",
        "bad": "bad (cli-bad 1.0) is failed.\n  import: RuntimeError",
        "plain": "plughost-plain 1.0 is installed, but is not a plugin: it has no entry points.",
        "tool": "it has entry points in console_scripts, but none in plughost.plugins.",
        "typo": "plughost-typo: its entry point t is in the group plughost.plugin",
        "binary-entry-points": "is installed, but damaged: entry_points.txt can't be read",
        "gooood": "; did you mean good?",
    }.items():
        code, text = run(line, "plugins", "--why", name)
        assert message in text
        assert code == (0 if "good (" in message else 1)
    assert "plughost-typo: its entry point t is in the group plughost.plugin" in run(line, "plugins")[1]


def test_a_plugin_without_an_entry_point_is_a_warning(line: Line) -> None:
    """It is named like a plugin and requires the host; a library that others require is no mistake."""
    line.install("good")
    for name, requires in {"mine": ["plughost"], "library": ["plughost"], "user": ["plughost-library"]}.items():
        write_package(line.packages, f"plughost-{name}", {}, requires=requires)
    for command in ("plugins", "check"):
        output = run(line, command)[1]
        warning = "plughost-mine is installed, but is not a plugin: it has no entry point in plughost.plugins"
        assert f"warning: {warning}" in output
        assert output.count("is not a plugin") == 1


@pytest.mark.parametrize(("limit", "disabled"), [("many", "[]"), ("3", '["shop"]')])
def test_a_variable_of_a_plugin_that_does_not_serve_is_no_mistake(
    line: Line, monkeypatch: pytest.MonkeyPatch, limit: str, disabled: str
) -> None:
    """Of a disabled plugin, or one that refuses a value, no model says which variables are settings."""
    model = "from pydantic import BaseModel\n\n\nclass Settings(BaseModel):\n    limit: int = 1\n\n\n"
    hook = "from plughost import hookimpl\n\n\n@hookimpl\ndef register_settings():\n    return Settings\n"
    line.install("shop", model + hook)
    monkeypatch.setenv("PLUGHOST_PLUGINS__SHOP__LIMIT", limit)
    monkeypatch.setenv("PLUGHOST_DISABLED", disabled)
    assert "is no setting" not in line.run("check", "--dev").output
