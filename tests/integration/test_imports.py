"""Commands import only what they need, since each import delays them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LIST = """
import gc, sys
from plughost._cli import main
main(["plugins", "--json"], standalone_mode=False)
assert gc.isenabled()
print(*sys.modules, file=sys.stderr)
"""


def test_listing_plugins_imports_no_templates_and_no_commands(tmp_path: Path) -> None:
    """Only development mode needs the console's pages, and only the command line needs plugins' commands."""
    done = subprocess.run([sys.executable, "-c", _LIST], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "dev-console" in done.stdout
    loaded = set(done.stderr.split())
    assert "plughost_dev_console.plugin" in loaded
    assert not {"jinja2", "plughost_packages.install_command", "plughost_scaffold.new_command"} & loaded
