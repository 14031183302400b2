"""Render a description as YAML or JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from plughost_openapi.document import Format

_BREAKS: Final = "\x85\u2028\u2029"
"""Characters that are line breaks in YAML 1.1, so they must be escaped."""


class _Dumper(yaml.SafeDumper):
    """Writes YAML that means the same in YAML 1.1 and 1.2."""

    def ignore_aliases(self, data: Any) -> bool:
        """Repeat shared values, because not every OpenAPI tool supports anchors."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the items of lists, for readability."""
        return super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(character in text for character in _BREAKS):
        style = '"'
    elif "\n" in text and not re.search(r"[ \t]\n", text):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
# PyYAML implements YAML 1.1 and would not quote strings that are numbers in YAML 1.2, such as 1e3 and 0o17.
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|0o[0-7]+$"),
    list("-+.0123456789"),
)


def render(description: dict[str, Any], as_format: Format) -> str:
    """Return a description as text."""
    if as_format == "json":
        return json.dumps(description, ensure_ascii=False, indent=2) + "\n"
    return yaml.dump(description, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
