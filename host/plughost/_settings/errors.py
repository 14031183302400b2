"""What is wrong with settings, in words: where, what, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from pydantic import ValidationError

_key_part = re.compile(r"[A-Za-z0-9_.-]+").fullmatch


class SettingsError(Exception):
    """Settings that can't be used.

    Attributes:
        problems: One line each: where, what, and what to do.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        """Keep the problems."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def problems_of(
    error: ValidationError,
    place: str,
    model: type[BaseModel],
    file: str,
    variable_of: Callable[[Sequence[str]], str | None],
) -> list[str]:
    """Return a line for each problem of a validation.

    Args:
        error: What pydantic found.
        place: The table's dotted key. Empty for the host's own settings.
        model: The model that refused it.
        file: The name of the settings file.
        variable_of: Returns the environment variable that sets a key, if any.
    """
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = [str(part) for part in problem["loc"] if _key_part(str(part))]  # of a union, pydantic adds each member
        key = ".".join(part for part in (place, *where) if part)
        variable = variable_of(where)
        source = f"environment: {variable}" if variable is not None else f"{file}: {key}"
        if problem["type"] == "extra_forbidden":
            known = list(_model_at(model, where[:-1]).model_fields)
            lines.append(f"{source}: unknown key{did_you_mean(where[-1], known)}")
        else:
            lines.append(f"{source}: {problem['msg'].removeprefix('Value error, ')}")
    return lines


def did_you_mean(name: str, known: list[str]) -> str:
    """Return an addition to a message on an unknown name: the nearest one, or all."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known) or 'none'}"


def _model_at(model: type[BaseModel], path: Iterable[str]) -> type[BaseModel]:
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    return model
