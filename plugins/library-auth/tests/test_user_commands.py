"""`plughost library-auth users` with a serving host, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import bcrypt
import pytest
import tomlkit

from plughost.testing import RunningHost, running_host, store_settings

if TYPE_CHECKING:
    from pathlib import Path

LOGIN = "/mylibrary/setup/login"
ALICE = ("alice@example.org", "correct horse")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Settings with one user, for each engine."""
    hashed = bcrypt.hashpw(b"settings", bcrypt.gensalt(4)).decode()
    user = {"email": "bob@example.org", "password_hash": hashed, "role": "admin"}
    with store_settings(request.param) as settings:
        yield {**settings, "plugins": {"library-auth": {"users": [user], "bcrypt_rounds": 10}}}


@pytest.fixture
def run(settings: dict[str, Any], tmp_path: Path) -> Run:
    """Run a command of the plugin with these settings, in its own process."""
    file = tmp_path / "plughost.toml"
    file.write_text(tomlkit.dumps({"data_dir": str(tmp_path / "data"), **settings}))

    def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            "from plughost._cli.main import main; main()",
            "library-auth",
            *arguments,
            "--config",
            str(file),
        ]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture
def host(settings: dict[str, Any], tmp_path: Path) -> Iterator[RunningHost]:
    """A host on the same data."""
    with running_host(["library-auth"], settings=settings, data_dir=tmp_path / "data", strict=True, dev=True) as host:
        yield host


def test_user_changes_reach_a_serving_host(run: Run, host: RunningHost) -> None:
    """A new user can log in at once; password, role and disabling take effect at the next login."""
    with host.client("library") as client:
        assert client.get(LOGIN, auth=ALICE).status_code == 401
        added = run("users", "add", ALICE[0], given=f"{ALICE[1]}\n")
        assert (added.returncode, ALICE[1] in added.stdout + added.stderr) == (0, False), added.stderr
        assert client.get(LOGIN, auth=("ALICE@example.org", ALICE[1])).status_code == 200
        assert run("users", "password", ALICE[0], given="another\n").returncode == 0
        assert client.get(LOGIN, auth=ALICE).status_code == 401
        assert run("users", "role", ALICE[0], "admin").returncode == 0
        token = client.get(LOGIN, auth=(ALICE[0], "another")).text
        answer = client.get("/mylibrary/setup/secured/admin", headers={"Authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.json()["email"]) == (200, ALICE[0])
        assert run("users", "disable", ALICE[0]).returncode == 0
        assert client.get(LOGIN, auth=(ALICE[0], "another")).status_code == 401
        assert run("users", "enable", ALICE[0]).returncode == 0
        assert client.get(LOGIN, auth=(ALICE[0], "another")).status_code == 200
        assert max(map(len, run("users", "list").stdout.splitlines())) <= 80
        shown = {row["email"]: row for row in json.loads(run("users", "list", "--json").stdout)}
    assert (shown[ALICE[0]]["kept"], shown[ALICE[0]]["role"], shown[ALICE[0]]["disabled"]) == ("store", "admin", False)
    assert shown[ALICE[0]]["last_login"].startswith("20")
    assert (shown["bob@example.org"]["kept"], shown["bob@example.org"]["last_login"]) == ("settings", None)


def test_settings_win_over_the_store(run: Run, settings: dict[str, Any], tmp_path: Path) -> None:
    """A change of the store's user warns that it has no effect, and the table shows where the user is stored."""
    assert run("users", "add", ALICE[0], given="store\n").returncode == 0
    users = settings["plugins"]["library-auth"]["users"]
    users.append({**users[0], "email": "Alice@example.org"})
    (tmp_path / "plughost.toml").write_text(tomlkit.dumps({"data_dir": str(tmp_path / "data"), **settings}))
    output = run("users", "role", ALICE[0], "user").stdout
    assert (
        output == f"Changed in the store, but without effect: the user {ALICE[0]} in the settings takes precedence.\n"
    )
    head, alice, bob = run("users", "list").stdout.splitlines()
    at = [head.index(word) for word in ("role", "kept in", "state", "last login", "audit name")]
    assert [alice[: at[0]].strip(), alice[at[1] : at[2]].strip()] == ["Alice@example.org", "settings, store"]
    assert [bob[: at[0]].strip(), bob[at[1] : at[2]].strip()] == ["bob@example.org", "settings"]
    serving = running_host(["library-auth"], settings=settings, data_dir=tmp_path / "data", strict=True, dev=True)
    with serving as host, host.client("library") as client:
        assert client.get(LOGIN, auth=(ALICE[0], "store")).status_code == 401
        assert client.get(LOGIN, auth=(ALICE[0], "settings")).status_code == 200


def test_a_narrow_table_has_no_audit_names(run: Run, tmp_path: Path) -> None:
    """80 columns are enough for short addresses; a narrower terminal shows what is left out."""
    assert run("users", "add", ALICE[0], given="store\n").returncode == 0
    whole = run("users", "list").stdout.splitlines()
    file = tmp_path / "plughost.toml"
    shown = {width: _list_on_a_terminal(width, file) for width in (80, 60)}
    assert shown[80] == whole
    assert shown[60][:-1] == [line[: whole[0].index("audit name")].rstrip() for line in whole]
    assert shown[60][-1].startswith("Not shown for lack of space: audit names. ")


def test_a_user_of_the_settings_can_not_be_added(run: Run) -> None:
    """In any spelling, this would have no effect."""
    added = run("users", "add", "Bob@example.org", given="store\n")
    assert (added.returncode, "the user Bob@example.org is in the settings" in added.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "given", "reason"),
    [
        (("add", "no address"), "x\n", "must be an e-mail address"),
        (("add", "carol@example.org"), "\n", "the password is empty"),
        (("add", "carol@example.org"), "x" * 73 + "\n", "73 bytes"),
        (("password", "carol@example.org"), "x\n", "the store has no user carol@example.org"),
        (("disable", "carol@example.org"), "", "the store has no user carol@example.org"),
        (("role", "carol@example.org", "admin"), "", "the store has no user carol@example.org"),
        (("role", "\udcff@example.org", "admin"), "", "the store has no user"),  # a byte that is not UTF-8
    ],
)
def test_an_impossible_command_prints_one_line(run: Run, arguments: tuple[str, ...], given: str, reason: str) -> None:
    """An invalid name or password, or an unknown user, is answered with a reason and no traceback."""
    result = run("users", *arguments, given=given)
    assert (result.returncode, "Traceback" in result.stderr) == (1, False)
    assert reason in result.stderr


def test_a_user_can_not_be_added_twice(run: Run) -> None:
    """Another spelling of an address is the same user."""
    assert run("users", "add", "carol@example.org", given="x\n").returncode == 0
    again = run("users", "add", "CAROL@example.org", given="y\n")
    assert (again.returncode, "already" in again.stderr) == (1, True)


def test_a_key_is_rotated_for_the_named_settings(run: Run, tmp_path: Path) -> None:
    """`rotate-key --config` writes into these settings' data folder, and the audit trail records it."""
    result = run("rotate-key")
    assert "signs from now on" in result.stdout
    assert (tmp_path / "data" / "plugins" / "library-auth" / "signing-keys.json").is_file()
    event = json.loads(result.stderr.splitlines()[-1])
    assert (event["event"], event["what"], event["outcome"], event["where"]) == (
        "audit",
        "key rotation",
        "ok",
        "command line",
    )


def _list_on_a_terminal(columns: int, file: Path) -> list[str]:
    """Return the lines of `users list` on a terminal of this width."""
    ours, side = pty.openpty()
    termios.tcsetwinsize(side, (24, columns))
    code = "from plughost._cli.main import main; main()"
    command = [sys.executable, "-c", code, "library-auth", "users", "list", "--config", str(file)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, stdout=side, env=environment):
        os.close(side)
        shown = b""
        with suppress(OSError):  # this is how a terminal ends
            while chunk := os.read(ours, 65536):
                shown += chunk
    os.close(ours)
    return shown.decode().splitlines()
