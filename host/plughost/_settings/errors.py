"""Error messages about settings: where the problem is, what it is, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic import ValidationError

_REWORDED: Final = {
    "valid IPv[46] network$": 'must be an address or a network without host bits, such as "10.0.0.0/8"',
    "(valid|as an) integer": "must be a whole number",
    "valid number": "must be a number",
    "valid string": "must be a text, in quotes",
    "valid boolean": "must be true or false",
    "valid (tuple|list)": "must be a list, in brackets",
    "valid path": "must be a path, in quotes",
    "valid dictionary": "must be a table",
    "^Field required": "is missing: set it",
    "byte (string|unit)": 'must be a size in bytes, or one with a unit, such as "10 MB"',
}
"""Patterns of pydantic's messages, and the words that replace the whole message."""

VARIABLES_LISTER: Final = "`plughost settings` lists"  # variables are named after the keys
SETTINGS_LISTER: Final = "`plughost init FILE` writes"
PLUGINS_LISTER: Final = "`plughost plugins` lists"
_MAX_LISTED: Final = 8
"""How many names a message lists."""

_key_part = re.compile(r"[A-Za-z0-9_.-]+").fullmatch
_words = re.compile(r"[A-Za-z0-9]+").findall


class SettingsError(Exception):
    """Settings that can't be used. Each of its `problems` is a line: where, what, and what to do."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def describe_problems(
    error: ValidationError,
    table: str,
    model: type[BaseModel],
    file: str,
    variable_of: Callable[[Sequence[str]], str | None],
) -> list[str]:
    """Return a line for each problem that pydantic found in a table; the host's own has an empty name."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        # pydantic adds the names of union members to the path, such as "tuple[str, ...]". An unknown key is its end.
        is_unknown = problem["type"] == "extra_forbidden"
        path = [str(part) for part in problem["loc"]]
        where = [part for part in path[:-1] if _key_part(part)]
        where += [part for part in path[-1:] if is_unknown or _key_part(part)]
        key = ".".join((*filter(None, [table]), *(part if _key_part(part) else repr(part) for part in where)))
        variable = variable_of(where)
        if variable is None:
            source = f"{file}: {key}"
        elif variable.endswith("__".join(where).replace("-", "_").upper()):
            source = f"environment: {variable}"
        else:  # it sets a table or a list
            source = f"environment: {variable}: {key}"
        if is_unknown:
            known = list(_model_at(model, where[:-1]).model_fields)
            elsewhere = " or ".join(_paths(model, where[-1], table))
            hint = f"; did you mean {elsewhere}?" if elsewhere else did_you_mean(where[-1], known, SETTINGS_LISTER)
            lines.append(f"{source}: unknown key{hint}")
        else:
            lines.append(f"{source}: {_reword(problem['msg'])}")
    return list(dict.fromkeys(lines))  # every member of a union repeats the message


def _reword(message: str) -> str:
    """Reword a message of pydantic's. Return the message of a validator of ours unchanged."""
    if message.startswith("Value error, "):
        return message.removeprefix("Value error, ")
    reworded = next((words for pattern, words in _REWORDED.items() if re.search(pattern, message)), message)
    return re.sub(
        "^(Input|String|Value|Tuple|List|Dictionary) should (.+?)( after validation.*)?$", r"must \2", reworded
    )


def did_you_mean(name: str, known: list[str], lister: str | None = None, *, prefix: str = "") -> str:
    """Return what to append to a message about an unknown name: what it resembles, or all known names.

    A name that contains all words of the unknown one resembles it. If many names are known and a command lists them,
    return that command, after the nearest of such names. Names are compared without the prefix that all of them share.
    """
    bare = {each.removeprefix(prefix): each for each in known}
    wanted = name.removeprefix(prefix)
    words = set(_words(wanted))
    containing = [each for each in bare if words and words.issubset(_words(each))]
    cutoff = 0.5 if containing else 0.6
    close = difflib.get_close_matches(wanted, containing or [*bare], n=1, cutoff=cutoff)
    if close:
        return f"; did you mean {bare[close[0]]}?"
    if lister is not None and len(known) > _MAX_LISTED:
        nearest = ", ".join(bare[each] for each in difflib.get_close_matches(wanted, containing, cutoff=0))
        return f"{f'; nearest: {nearest}' if nearest else ''}; {lister} all"
    return f"; known: {', '.join(known) or 'none'}"


def _paths(model: type[BaseModel], name: str, table: str = "") -> Iterator[str]:
    """Yield the full key of each setting of a name, in any table of a model."""
    for key in model.model_fields:
        path = f"{table}.{key}".removeprefix(".")
        if key == name:
            yield path
        if (inner := _model_at(model, [key])) is not model:
            yield from _paths(inner, name, path)


def _model_at(model: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return model
