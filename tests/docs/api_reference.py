"""Generates docs/plugin-authors/reference.md from the public docstrings; test_reference.py compares it."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cached_property
from typing import Any, Final

MODULES: Final = ("plughost", "plughost.http", "plughost.stores", "plughost.ratelimits", "plughost.testing")
_HEAD: Final = """# Reference

Every public name, from the docstrings: `python tests/docs/update_references.py` writes this page. What that promises
is in [What stays](promise.md). In Python, `help(name)` shows more: what methods take, return and raise.
"""


def reference() -> str:
    """Return the page."""
    parts = [_HEAD]
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"\n## {name}\n\n{_opening(module)}\n")
        names = sorted(module.__all__, key=str.lower)
        parts.extend(_section(f"{name}.{public}", getattr(module, public)) for public in names)
    return "".join(parts)


def _section(name: str, value: Any) -> str:
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return f"\n### {name}\n\nA `{type(value).__name__}`.\n"
    signature = "" if inspect.isclass(value) and issubclass(value, BaseException) else _signature(value)
    text = f"\n### {name}\n\n`{name.rpartition('.')[2]}{signature}`\n\n{_prose(value)}\n"
    methods = _methods(value) if inspect.isclass(value) else []
    if methods:
        text += "\n**Methods**\n\n"
    for method, function in methods:
        shown = method if isinstance(function, (property, cached_property)) else f"{method}{_signature(function)}"
        text += f"- `{shown}`: {_opening(function)}\n"
    return text


def _methods(value: type) -> list[tuple[str, Any]]:
    """Return a class's own public methods and properties, in the order of the source."""
    members = {name: member for name, member in vars(value).items() if not name.startswith("_")}
    wanted = (staticmethod, classmethod, property, cached_property)
    return [
        (name, getattr(member, "__func__", member))
        for name, member in members.items()
        if (inspect.isfunction(member) or isinstance(member, wanted)) and inspect.getdoc(member)
    ]


def _signature(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    kept = [each.replace(annotation=inspect.Parameter.empty) for each in parameters if each.name not in {"self", "cls"}]
    kept = [
        each if each.default is inspect.Parameter.empty else each.replace(default=_Plain(each.default)) for each in kept
    ]
    text = str(inspect.Signature(kept))
    return re.sub(r"=<", " = <", text)


class _Plain:
    """A default value with a readable `repr`."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        shown = repr(self._value)
        return "..." if "<" in shown or " at 0x" in shown or len(shown) > 40 else shown


def _after_heading(lines: list[str]) -> bool:
    """Return whether a section with indented text, such as Returns, has begun."""
    return any(line in {"**Returns**", "**Yields**", "**Raises**"} for line in lines)


def _opening(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


def _prose(value: Any) -> str:
    """Convert a docstring in Google style to Markdown, without references to CONTRACT, which is not published."""
    lines: list[str] = []
    for line in re.sub(r" \(CONTRACT \d\)", "", inspect.getdoc(value) or "").splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Yields):", line):
            lines += [f"**{line.rstrip(':')}**", ""]
        elif (found := re.fullmatch(r"    (\*{0,2}[\w.]+): (.*)", line)) is not None:
            lines.append(f"- `{found[1]}`: {found[2]}")
        elif line.startswith("        ") and lines and lines[-1].startswith(("- ", "  ")):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line.strip() if _after_heading(lines) else line)
    return "\n".join(lines)
