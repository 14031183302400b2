"""How a limit is written in a plugin's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _limit(text: str) -> str:
    from limits import parse_many  # noqa: PLC0415 - takes long to import

    parsed = parse_many(text)  # its ValueError says what is wrong
    if len(parsed) != 1 or parsed[0].amount < 1 or parsed[0].get_expiry() < 1:
        message = "must be one limit that allows at least one, such as 100/minute"
        raise ValueError(message)
    return text


Limit = Annotated[str, AfterValidator(_limit)]
"""A limit in a plugin's settings: an amount per time, such as `100/minute` or `5 per 2 hours`."""
