"""A description as YAML or JSON text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from plughost_openapi.document import Format

_BREAKS: Final = "\x85\u2028\u2029"
"""What YAML 1.1 takes for the end of a line, so that it has to be escaped."""


class _Dumper(yaml.SafeDumper):
    """Writes what readers of YAML 1.1 and of YAML 1.2 take for the same."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write what is there twice twice: not every reader of descriptions knows anchors."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the items of lists, which people read more easily."""
        return super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(character in text for character in _BREAKS):
        style = '"'
    elif "\n" in text and not re.search(r"[ \t]\n", text):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
# Numbers of YAML 1.2 that PyYAML, which speaks 1.1, would leave unquoted in a string, such as 1e3 and 0o17.
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|0o[0-7]+$"),
    list("-+.0123456789"),
)


def render(description: dict[str, Any], as_format: Format) -> str:
    """Return a description as text.

    Args:
        description: The OpenAPI object.
        as_format: `yaml` or `json`.
    """
    if as_format == "json":
        return json.dumps(description, ensure_ascii=False, indent=2) + "\n"
    return yaml.dump(description, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
