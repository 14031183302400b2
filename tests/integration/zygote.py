"""A process that has imported the host and forks one for each line it is told: a start takes a tenth of the time.

`zygote.py` reads requests from its standard input, a line of JSON each, and answers with a line: `{"start": ARGUMENTS,
"folder": FOLDER}` with a process id, `{"wait": PROCESS}` with an exit code.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

MODULES = ("serving", "stores", "switching", "controlling")
LIBRARIES = (
    "granian.server.embed",
    "waitress",
    "pony.orm",
    "psycopg2",
    "plughost._servers.waitress",
    "plughost_health.plugin",
)


def main() -> None:
    """Answer until the standard input ends; a child process returns from here as the requested command."""
    from plughost._cli import main as command  # noqa: PLC0415 - only the process itself imports the host

    for module in MODULES:
        import_module(f"plughost._cli.{module}")
    for library in LIBRARIES:
        import_module(library)
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        if "wait" in asked:
            _, status = os.waitpid(asked["wait"], 0)
            told = os.waitstatus_to_exitcode(status)
        else:
            told = os.fork()
            if not told:
                _move(Path(asked["folder"]))
                command(asked["start"])
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()


def _move(folder: Path) -> None:
    """Change to the folder of the settings, and redirect output to a file there."""
    os.chdir(folder)
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    for number in (1, 2):
        os.dup2(written, number)


if __name__ == "__main__":
    main()
