"""`plughost init`: a settings file to begin with."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from pydantic import SecretStr

from plughost._cli.options import look
from plughost._settings.sources import DEFAULT_FILE, no_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from plughost._api.values import Value

_MASK: Final = str(SecretStr("any"))
_HEAD: Final = """\
# The settings of a plughost. Each line that is commented out shows the default: remove the # to set it.
# Lists of plugins are names as `plughost plugins` shows them. `plughost check` says whether all can be used,
# `plughost reload` lets a running host take changes up.
"""


@click.command()
@click.argument("file", default=DEFAULT_FILE, type=click.Path(path_type=Path, dir_okay=False))
def init(file: Path) -> None:
    """Write FILE, by default ./plughost.toml, with every setting of the host and of the installed plugins.

    All are commented out, with their default and what they are for: the file changes nothing until you do. A file
    that is there already is left alone.
    """
    text = f"{_HEAD}\n" + "\n".join(_lines(look(no_settings()).setting_values()))
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(f"{text}\n")
    except FileExistsError:
        raise click.ClickException(f"{file} is there already. Name another file, or move it away.") from None
    except OSError as error:
        raise click.ClickException(f"{file} can't be written: {error.strerror}.") from None
    click.echo(f"Wrote {file}. Edit it, then run `plughost check --config {file}`.")


def _place(table: tuple[str, list[Value]]) -> tuple[bool, bool, str]:
    of_plugin = table[0].startswith("plugins.")
    return table[0] != "", of_plugin, table[0] if of_plugin else ""


def _lines(values: Iterable[Value]) -> Iterator[str]:
    """Yield a table for each prefix, those of the host's own keys first, since TOML wants them above all tables."""
    tables: dict[str, list[Value]] = {}
    for value in values:
        tables.setdefault(value.key.rpartition(".")[0], []).append(value)
    for table, rows in sorted(tables.items(), key=_place):
        if table:
            yield f"\n[{table}]"
        for value in rows:
            yield from textwrap.wrap(value.description, 110, initial_indent="# ", subsequent_indent="# ")
            shown = value.default is not None and value.default != _MASK
            default = json.dumps(value.default, ensure_ascii=False) if shown else ""
            yield f"#{value.key.rpartition('.')[2]} = {default}".rstrip()
