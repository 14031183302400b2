"""The commands that hash passwords and create signing keys."""

from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from click.testing import CliRunner

from plughost import PluginContext
from plughost_library_auth.commands import hash_password_command, rotate_key_command
from plughost_library_auth.keyring import KEY_FILE, KeyRing
from plughost_library_auth.settings import Settings

MakeContext = Callable[..., PluginContext[Settings]]


def test_a_script_gets_the_hash_of_a_line(make_context: MakeContext) -> None:
    """Without a terminal, one line is read, and the hash with the configured rounds is the only output."""
    result = CliRunner().invoke(hash_password_command, input="pässword\nmore\n", obj=make_context(bcrypt_rounds=10))
    assert result.exit_code == 0
    assert result.stdout.startswith("$2b$10$")
    assert bcrypt.checkpw("pässword".encode(), result.stdout.rstrip("\n").encode())


@pytest.mark.parametrize(
    ("given", "reason"), [("", "is empty"), ("\n", "is empty"), ("é" * 37, "has 74 bytes"), (b"\xff\n", "is not UTF-8")]
)
def test_a_password_that_can_not_be_hashed_is_refused(
    make_context: MakeContext, given: str | bytes, reason: str
) -> None:
    """Only the reason is printed, and the exit code is not 0."""
    result = CliRunner().invoke(hash_password_command, input=given, obj=make_context())
    assert (result.exit_code, result.stdout) == (1, "")
    assert reason in result.stderr


def test_a_terminal_asks_twice_and_shows_nothing() -> None:
    """A terminal prompts twice for the password without echo, and the output is only the hash."""
    script = (
        "from types import SimpleNamespace\n"
        "from plughost_library_auth.commands import hash_password_command\n"
        "hash_password_command(obj=SimpleNamespace(settings=SimpleNamespace(bcrypt_rounds=10)))"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = _read_until(ours, b"Password: ")
        os.write(ours, b"s3cret\n")
        shown += _read_until(ours, b"confirmation: ")
        os.write(ours, b"s3cret\n")
        output, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert bcrypt.checkpw(b"s3cret", output.rstrip(b"\n"))
    assert b"s3cret" not in shown


def test_rotation_lists_the_keys_and_their_ends(make_context: MakeContext, logs: list[dict[str, Any]]) -> None:
    """It prints the new key's name and each old one with its end; an open ring uses the new key."""
    context = make_context()
    ring = KeyRing(context.data_dir, algorithm="EdDSA", lifetime=900)
    old = ring.signing_key().kid
    result = CliRunner().invoke(rotate_key_command, obj=context)
    first, second = result.stdout.splitlines()
    assert first == f"{ring.signing_key().kid} (EdDSA) signs from now on."
    assert ring.signing_key().kid != old
    assert second.startswith(f"{old} (EdDSA) verifies until 20")
    assert [(entry["event"], entry["what"], entry["outcome"]) for entry in logs] == [("audit", "key rotation", "ok")]


def test_rotation_reports_a_damaged_file(make_context: MakeContext) -> None:
    """An unreadable key file is reported in one line, and left alone."""
    context = make_context()
    (context.data_dir / KEY_FILE).write_text("damaged")
    result = CliRunner().invoke(rotate_key_command, obj=context)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the signing keys ")
    assert Path(context.data_dir / KEY_FILE).read_text() == "damaged"


def test_rotation_on_a_full_disk_names_the_place(make_context: MakeContext) -> None:
    """The message has the folder and the reason, and the old key goes on."""
    context = make_context()
    ring = KeyRing(context.data_dir, algorithm="EdDSA", lifetime=900)
    old = ring.signing_key().kid
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        result = CliRunner().invoke(rotate_key_command, obj=context)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert result.stderr == f"Error: the signing keys in {context.data_dir} can't be written: File too large\n"
    assert (result.exit_code, ring.signing_key().kid) == (1, old)


def _read_until(terminal: int, end: bytes) -> bytes:
    shown = b""
    while not shown.endswith(end):
        shown += os.read(terminal, 1024)
    return shown
