"""`plughost check --files`: the installed files are unchanged, and there are no others."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

import pytest

from .wheels import speaker_wheel

if TYPE_CHECKING:
    from .environments import Sandbox


def _own(sandbox: Sandbox, *names: str) -> None:
    """Add files to the host's RECORD."""
    record = next(sandbox.site.glob("plughost-*.dist-info/RECORD"))
    record.write_text(record.read_text() + "".join(f"{name},,\n" for name in names))


def test_changed_added_and_removed_files_are_found(sandbox: Sandbox) -> None:
    """`plughost check --files` names each; byte code that Python has written since is accepted."""
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", files={"speaking_greeter/more.py": "x = 1\n"}))
    _own(sandbox, "outside.pth")
    assert "all well" in sandbox.run("check", "--files")
    package = sandbox.site / "speaking_greeter"
    (package / "__init__.py").write_text((package / "__init__.py").read_text() + "evil = 1\n")
    (package / "more.py").unlink()
    (package / "evil.py").write_text("evil = 1\n")
    output = sandbox.run("check", "--files", code=1)
    for file, fault in (("__init__.py", "was changed"), ("more.py", "is gone"), ("evil.py", "was added")):
        assert f"problem: plughost-greeter 1.0: {package / file} {fault}" in output
    assert sandbox.run("check").endswith("all well.\n")


STRAYS: Final = {
    "evil.pth": "evil.pth",
    "sitecustomize.py": "sitecustomize.py",
    "_virtualenv.pth": "_virtualenv.pth",  # its name alone doesn't make it virtualenv's
    "speaking_greeter.pyc": "speaking_greeter.pyc",
    "speaking_greeter/evil.pyc": "speaking_greeter/evil.pyc",
    "speaking_greeter/steps/sqlite/9999_evil.sql": "speaking_greeter/steps",
    "module/__init__.py": "module",  # precedes module.py
    "namespace/part/evil.py": "namespace/part",
}
"""A file that somebody adds, and what of it is named."""


@pytest.mark.parametrize("added", STRAYS)
def test_code_of_no_distribution_is_found(sandbox: Sandbox, added: str) -> None:
    """This is any code in the plugins' folder that Python would run or import, also beside packages."""
    files = {"module.py": "", "namespace/own.py": ""}
    sandbox.put(speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", files=files))
    _own(sandbox, "outside.pth")
    (sandbox.site / "_virtualenv.py").write_text("")
    (sandbox.site / "_virtualenv.pth").write_text("import _virtualenv")
    (sandbox.site / "data").mkdir()
    (sandbox.site / "data" / "notes.txt").write_text("no code")
    assert "all well" in sandbox.run("check", "--files")
    (sandbox.site / added).parent.mkdir(parents=True, exist_ok=True)
    (sandbox.site / added).write_text("#")
    output = sandbox.run("check", "--files", code=1)
    assert f"{sandbox.site / STRAYS[added]} was added" in output
    assert output.count("problem: ") == 1


def test_a_linked_folder_of_code_is_found(sandbox: Sandbox) -> None:
    """A link to a package elsewhere counts like the package."""
    _own(sandbox, "outside.pth")
    (sandbox.site / "evil").symlink_to(sandbox.folder)
    assert f"{sandbox.site / 'evil'} was added: it is in no RECORD" in sandbox.run("check", "--files", code=1)


def test_a_command_that_pipx_made_ignore_variables_is_unchanged(sandbox: Sandbox) -> None:
    """Pipx adds an option to the first line; any other change of the command is found."""
    _own(sandbox, "outside.pth")
    command, rest = sandbox.python.with_name("tool"), b"\nprint('tool')\n"
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"#!/bin/python" + rest).digest()).rstrip(b"=").decode()
    _own(sandbox, f"../../../bin/tool,sha256={digest}")
    command.write_bytes(b"#!/bin/python -E" + rest)
    assert "all well" in sandbox.run("check", "--files")
    command.write_bytes(b"#!/bin/python -i" + rest)
    assert f"{command} was changed" in sandbox.run("check", "--files", code=1)
